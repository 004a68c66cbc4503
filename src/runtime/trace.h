// SPDX-License-Identifier: Apache-2.0
//
// Trace: where the time of some steps went, as Chrome trace events (open trace.json in ui.perfetto.dev). One process
// per rank: what the worker did (steps, blocked) and, each on a row of its own, what was on the wire. All ranks stand
// on rank 0's clock: `offset_seconds` is what to add to ours.
#pragma once

#include <slipstream/engine/step_record.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/metered_fabric.h"

namespace slipstream {

class Trace {
 public:
  Trace(int rank, double offset_seconds, std::int64_t steps);
  void add(const StepRecord& record, const Traffic& traffic, double step_ended);
  std::string events() const;  // JSON objects, comma-separated

  // The whole file from the events of all ranks.
  static std::string document(const std::vector<std::string>& events_by_rank);

 private:
  static constexpr std::int64_t kSkippedSteps = 5;  // the first steps are not like the others

  void event(const std::string& name, double began, double ended);
  void wire_event(const std::string& name, double began, double ended);

  int rank_;
  double offset_seconds_;
  std::int64_t steps_;
  std::string events_;
  std::int64_t wire_events_ = 0;
};

// What to add to this rank's clock to get rank 0's: the median over several barriers, which end nearly at once
// everywhere. A collective.
double clock_offset(Fabric& net);

}  // namespace slipstream
