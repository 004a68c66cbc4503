// SPDX-License-Identifier: Apache-2.0
#include "engine/groups.h"

#include <fmt/ranges.h>
#include <fnmatch.h>
#include <slipstream/base/error.h>

#include <algorithm>

namespace slipstream {
namespace {

constexpr std::size_t kNamesListed = 200;

bool matches(const std::string& pattern, const Slot& slot) {
  return pattern == slot.name || fnmatch(pattern.c_str(), slot.name.c_str(), 0) == 0;
}

bool contains(const ParameterGroup& group, const Slot& slot) {
  return std::any_of(group.names.begin(), group.names.end(),
                     [&](const std::string& pattern) { return matches(pattern, slot); });
}

std::string names_of(const std::vector<Slot>& slots) {
  std::string text;
  for (std::size_t i = 0; i < std::min(slots.size(), kNamesListed); ++i) text += (i > 0 ? ", " : "") + slots[i].name;
  return slots.size() > kNamesListed ? text + ", …" : text;
}

}  // namespace

GroupMap map_groups(const std::vector<ParameterGroup>& groups, const FlatModel& model) {
  const auto& slots = model.slots();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].names.empty())
      fail<ConfigError>("parameter group {} names no parameters; name some or leave it out", i);
    for (const std::string& pattern : groups[i].names) {
      if (std::any_of(slots.begin(), slots.end(), [&](const Slot& slot) { return matches(pattern, slot); })) continue;
      fail<ConfigError>("no parameter's name matches {}, an entry of parameter group {}; the model has {}", pattern, i,
                        names_of(slots));
    }
  }
  GroupMap map;
  if (groups.empty()) return map;
  for (const Slot& slot : slots) {
    int found = GroupMap::kNone;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (!contains(groups[i], slot)) continue;
      if (found != GroupMap::kNone) {
        fail<ConfigError>("parameter {} is in the groups {} and {}; a parameter can be in one", slot.name, found, i);
      }
      found = static_cast<int>(i);
    }
    map.append(slot.count, found);
  }
  return map;
}

std::size_t tensors_in(const ParameterGroup& group, const FlatModel& model) {
  const auto inside = [&](const Slot& slot) { return contains(group, slot); };
  return static_cast<std::size_t>(std::count_if(model.slots().begin(), model.slots().end(), inside));
}

void add_groups(Facts& facts, const std::vector<ParameterGroup>& groups) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const ParameterGroup& group = groups[i];
    facts.push_back({fmt::format("parameter group {}", i),
                     fmt::format("{} with lr_factor {}{}", fmt::join(group.names, ", "), group.lr_factor,
                                 group.weight_decay ? fmt::format(" and weight_decay {}", *group.weight_decay) : "")});
  }
}

}  // namespace slipstream
