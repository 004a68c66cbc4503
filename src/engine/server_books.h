// SPDX-License-Identifier: Apache-2.0
//
// ServerBooks: what the parameter servers of a job hold, by place in the flat model and so whoever holds it: the weights
// and the optimizer's state. It is how that state comes to another number of servers, when a job is resumed or a worker
// joins. The servers' counters of rounds are not in it: they begin anew with the group.
//
// Both ways go through Strategy::visit, where ServerClient names a server's state "server@FIRST/FIELD", FIRST being the
// place of its first float in the model.
#pragma once

#include <slipstream/fabric/fabric.h>
#include <slipstream/strategy/strategy.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

class ServerBooks {
 public:
  // One piece of state, as visited; others than servers' are ignored. `count`: floats of the model.
  void note(std::string_view name, std::span<const float> values, std::size_t count);
  void note(std::string_view name, std::int64_t value);

  // What this rank's visit shows of them. All ranks.
  static ServerBooks of(Strategy& strategy, std::size_t count);

  // A collective: everybody has what any rank had. False, and empty, where that is not all of the model.
  bool share(Fabric& net, const OptimizerOptions& optimizer, std::size_t count);

  bool empty() const { return fields_.empty(); }
  std::span<const float> weights() const { return fields_.at("weights"); }
  void give_to(Strategy& strategy) const;  // after on_start, all ranks

 private:
  std::map<std::string, std::vector<float>, std::less<>> fields_;  // of the whole model; zeros where not known
  std::map<std::string, std::int64_t, std::less<>> integers_;
  std::int64_t known_ = 0;  // weights
};

}  // namespace slipstream
