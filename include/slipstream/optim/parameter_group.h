// SPDX-License-Identifier: Apache-2.0
//
// Parameter groups: tensors that are trained with another learning rate or weight decay than the rest; all else is the
// optimizer's. A user names them (ParameterGroup); what works on flat ranges has a GroupMap, which says where they lie.
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
  std::vector<std::string> names{};      // of parameters, or patterns: * and ? stand for any characters and for one
  double lr_factor = 1.0;                // times the optimizer's learning rate; 0: the parameters stay as they are
  std::optional<double> weight_decay{};  // in place of the optimizer's; empty: that
};

// Which group every element of a flat range is in. Neighbours of the same group are one stretch, so that where nobody
// made groups there is one: a pass over the range is then a single call.
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

  // visit(begin, count, group) for the stretches that make up [offset, offset + count), in their order. A map that
  // nothing was appended to has all elements in no group.
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

  // The map of a part, whose first element is 0 then.
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
