// SPDX-License-Identifier: Apache-2.0
//
// Parameter groups: tensors trained with a learning rate or weight decay of their own; everything else is the
// optimizer's. A user names them (ParameterGroup); code that works on flat ranges uses a GroupMap, which says where
// they lie.
//
//   {.names = {"*.bias", "*norm*"}, .weight_decay = 0.0}
//   {.names = {"head.weight"}, .lr_factor = 10.0}
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace slipstream {

struct ParameterGroup {
  std::vector<std::string> names{};      // of parameters, or patterns: * matches any characters, ? exactly one
  double lr_factor = 1.0;                // multiplies the optimizer's learning rate; 0: the parameters stay as they are
  std::optional<double> weight_decay{};  // replaces the optimizer's; empty: keep the optimizer's
};

// Which group every element of a flat range is in. Neighbours of the same group form one stretch. Without groups there
// is a single stretch, so that a pass over the range is a single call.
class GroupMap {
 public:
  static constexpr int kNone = -1;  // in no group
  struct Stretch {
    std::size_t end = 0;
    int group = kNone;
    bool operator==(const Stretch&) const = default;
  };

  // The next `count` elements are in this group.
  void append(std::size_t count, int group) {
    if (count == 0) return;
    const std::size_t begin = size();
    if (!stretches_.empty() && stretches_.back().group == group) stretches_.pop_back();
    stretches_.push_back({begin + count, group});
  }

  std::size_t size() const { return stretches_.empty() ? 0 : stretches_.back().end; }
  const std::vector<Stretch>& stretches() const { return stretches_; }

  // Calls visit(begin, count, group) for the stretches that make up [offset, offset + count), in order. In an empty map
  // all elements are in no group.
  template <typename Visit>
  void each(std::size_t offset, std::size_t count, const Visit& visit) const {
    if (stretches_.empty()) return visit(offset, count, kNone);
    auto at = std::upper_bound(stretches_.begin(), stretches_.end(), offset,
                               [](std::size_t place, const Stretch& stretch) { return place < stretch.end; });
    for (const std::size_t end = offset + count; offset < end; ++at) {
      const std::size_t until = std::min(end, at->end);
      visit(offset, until - offset, at->group);
      offset = until;
    }
  }

  // The map of a part, counted from the part's first element.
  GroupMap part(std::size_t offset, std::size_t count) const {
    GroupMap map;
    if (stretches_.empty()) return map;
    each(offset, count, [&](std::size_t, std::size_t elements, int group) { map.append(elements, group); });
    return map;
  }

 private:
  std::vector<Stretch> stretches_;
};

}  // namespace slipstream
