// SPDX-License-Identifier: Apache-2.0
//
// ServerBooks: what the parameter servers of a job hold, the weights and the optimizer's state, by place in the flat
// model and so regardless of which server holds it. This is how the state reaches another number of servers when a job
// is resumed or a worker joins. The servers' counters of rounds are not included: they begin anew with the group.
//
// Reading and writing go through Strategy::visit, where ServerClient names a server's state "server@FIRST/FIELD", FIRST
// being the index of its first float in the model.
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
  // Adds one piece of visited state; state that is not a server's is ignored. `count`: floats of the model.
  void note(std::string_view name, std::span<const float> values, std::size_t count);
  void note(std::string_view name, std::int64_t value);

  // What this rank's visit shows. Call it on all ranks.
  static ServerBooks of(Strategy& strategy, std::size_t count);

  // A collective: all ranks get what any rank had. False, and empty, if that is not the whole model.
  bool share(Fabric& net, const OptimizerOptions& optimizer, std::size_t count);

  bool empty() const { return fields_.empty(); }
  std::span<const float> weights() const { return fields_.at("weights"); }
  void give_to(Strategy& strategy) const;  // after on_start, on all ranks

 private:
  std::map<std::string, std::vector<float>, std::less<>> fields_;  // of the whole model; zeros where not known
  std::map<std::string, std::int64_t, std::less<>> integers_;
  std::int64_t known_ = 0;  // number of weights known
};

}  // namespace slipstream
