// SPDX-License-Identifier: Apache-2.0
#include "runtime/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace slipstream {

Trace::Trace(int rank, double offset_seconds, std::int64_t steps)
    : rank_(rank), offset_seconds_(offset_seconds), steps_(steps) {
  events_ = fmt::format(R"({{"name":"process_name","ph":"M","pid":{0},"args":{{"name":"rank {0}"}}}})"
                        ",\n"
                        R"({{"name":"thread_name","ph":"M","pid":{0},"tid":0,"args":{{"name":"worker"}}}})",
                        rank);
}

void Trace::add(const StepRecord& record, const Traffic& traffic, double step_ended) {
  if (record.t < kSkippedSteps || record.t >= kSkippedSteps + steps_) return;
  event(fmt::format("step {}", record.t), step_ended - record.seconds, step_ended);
  for (const OperationRecord& op : traffic.operations) {
    wire_event(fmt::format("{} {:.0f} kB", op.kind, op.bytes / 1000), op.started, op.finished);
    event("blocked", op.wait_began, op.wait_ended);
  }
}

void Trace::event(const std::string& name, double began, double ended) {
  if (ended <= began) return;
  events_ += fmt::format(
      ",\n"
      R"({{"name":"{}","ph":"X","pid":{},"tid":0,"ts":{:.1f},"dur":{:.1f}}})",
      name, rank_, 1e6 * (began + offset_seconds_), 1e6 * (ended - began));
}

// Operations overlap without nesting, which only asynchronous events may.
void Trace::wire_event(const std::string& name, double began, double ended) {
  ++wire_events_;
  for (const auto& [phase, at] : {std::pair{'b', began}, std::pair{'e', ended}}) {
    events_ += fmt::format(
        ",\n"
        R"({{"name":"{}","cat":"wire","ph":"{}","id":{},"pid":{},"tid":0,"ts":{:.1f}}})",
        name, phase, wire_events_, rank_, 1e6 * (at + offset_seconds_));
  }
}

std::string Trace::events() const { return events_; }

std::string Trace::document(const std::vector<std::string>& events_by_rank) {
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n", fmt::join(events_by_rank, ",\n"));
}

double clock_offset(Fabric& net) {
  constexpr std::size_t kBarriers = 7;
  std::vector<double> ends;
  for (std::size_t i = 0; i < kBarriers; ++i) {
    float one = 1;
    net.sum(std::span(&one, 1)).wait();
    ends.push_back(net.clock().now());
  }
  std::vector<double> all(kBarriers * static_cast<std::size_t>(net.size()));
  net.gather(std::as_bytes(std::span(ends)), std::as_writable_bytes(std::span(all))).wait();
  std::vector<double> offsets;
  for (std::size_t i = 0; i < kBarriers; ++i) offsets.push_back(all[i] - ends[i]);  // rank 0 comes first
  std::nth_element(offsets.begin(), offsets.begin() + kBarriers / 2, offsets.end());
  return offsets[kBarriers / 2];
}

}  // namespace slipstream
