// SPDX-License-Identifier: Apache-2.0
//
// Trace: where the time of some steps went, as Chrome trace events (open trace.json in ui.perfetto.dev, or look at it
// in `slipstream report`). One process per rank, numbered from 1, with a row (thread) for each kind of time: steps,
// forward, backward, encode, update, waits, and as many rows of the wire as operations ran at once. All ranks use rank
// 0's clock: add `offset_seconds` to ours.
//
// Backward is cut where a bucket's gradients became ready, and named by that bucket. If the loop does not report its
// forward passes (Session::Forward), a step begins with "forward and backward to …". The trace measures nothing itself;
// the loop, the engine and MeteredFabric do.
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
  void add(const StepRecord& record, const Traffic& traffic);
  std::string events() const;  // JSON objects, comma-separated

  // The whole file from the events of all ranks.
  static std::string document(const std::vector<std::string>& events_by_rank);

 private:
  static constexpr std::int64_t kSkippedSteps = 5;  // the first steps are not typical

  struct Span {
    std::string name;
    double began = 0, ended = 0;
  };
  struct WireSpan : Span {
    double bytes = 0;
    bool background = false;
  };

  void add_work(const std::vector<WorkRecord>& work, const std::vector<Span>& blocked, double began, double ended);
  void add_computing(const std::vector<WorkRecord>& forwards, const std::string& backward, double began, double ended,
                     bool first);
  std::string name_of(const OperationRecord& op) const;
  std::string wire_events() const;
  void event(int row, const std::string& name, double began, double ended);
  double ticks(double seconds) const;
  std::string made(int row, const std::string& name, double began, double ended, const std::string& more) const;

  int rank_;
  double offset_seconds_;
  std::int64_t steps_;
  std::string events_;
  std::vector<Span> handed_over_;  // by bucket: operations that began meanwhile are the bucket's
  std::vector<WireSpan> wire_;
};

// What to add to this rank's clock to get rank 0's: the median over several barriers, which end nearly at the same time
// everywhere. A collective.
double clock_offset(Fabric& net);

}  // namespace slipstream
