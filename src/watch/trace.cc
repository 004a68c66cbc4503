// SPDX-License-Identifier: Apache-2.0
#include "watch/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace slipstream {
namespace {

constexpr double kTooShort = 5e-6;  // seconds; too short to be seen, and there are many

// The rows of a rank, as thread numbers.
enum Row : int { kSteps, kForward, kBackward, kEncode, kUpdate, kWaits, kWire };
constexpr const char* kRowNames[] = {"steps", "forward", "backward", "encode", "update", "waits"};

std::string named(const char* what, int process, int row, const std::string& name) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", what, process, row, name);
}

std::string size_text(double bytes) {
  return bytes < 1e6 ? fmt::format("{:.3g} kB", bytes / 1e3) : fmt::format("{:.3g} MB", bytes / 1e6);
}

}  // namespace

Trace::Trace(int rank, double offset_seconds, std::int64_t steps)
    : rank_(rank), offset_seconds_(offset_seconds), steps_(steps) {
  events_ = named("process_name", rank + 1, 0, fmt::format("rank {}", rank));
  for (int row = kSteps; row < kWire; ++row) events_ += ",\n" + named("thread_name", rank + 1, row, kRowNames[row]);
}

void Trace::add(const StepRecord& record, const Traffic& traffic) {
  if (record.t < kSkippedSteps || record.t >= kSkippedSteps + steps_) return;
  const double step_ended = traffic.ended, step_began = step_ended - record.seconds;
  event(kSteps, fmt::format("step {}", record.t), step_began, step_ended);
  for (const WorkRecord& work : traffic.work) {
    if (work.kind == WorkRecord::Kind::kBucket)
      handed_over_.push_back({std::string(work.bucket), work.began, work.ended});
  }
  std::vector<Span> blocked;
  for (const OperationRecord& op : traffic.operations) {
    const std::string name = name_of(op);
    wire_.push_back({{name, op.started, op.finished}, op.bytes, op.background});
    if (op.wait_ended <= op.wait_began) continue;
    blocked.push_back({"wait for " + name, op.wait_began, op.wait_ended});
    event(kWaits, blocked.back().name, op.wait_began, op.wait_ended);
  }
  add_work(traffic.work, blocked, step_began, step_ended);
}

// Time between the strategy's hooks is forward, if the loop reported it, else backward; encode is the part of a hook
// that is neither a wait nor an update.
void Trace::add_work(const std::vector<WorkRecord>& work, const std::vector<Span>& blocked, double began,
                     double ended) {
  std::vector<WorkRecord> hooks, forwards;
  std::vector<Span> other = blocked;  // inside hooks: waits and updates
  for (WorkRecord one : work) {
    if (one.ended <= began) continue;        // before the first step
    one.began = std::max(one.began, began);  // correct for rounding
    if (one.kind == WorkRecord::Kind::kUpdate) {
      event(kUpdate, "update", one.began, one.ended);
      other.push_back({"", one.began, one.ended});
    } else {
      (one.kind == WorkRecord::Kind::kForward ? forwards : hooks).push_back(one);
    }
  }
  const auto earlier = [](const auto& a, const auto& b) { return a.began < b.began; };
  std::sort(hooks.begin(), hooks.end(), earlier);
  std::sort(other.begin(), other.end(), earlier);

  double at = began;
  for (const WorkRecord& hook : hooks) {
    const bool bucket = hook.kind == WorkRecord::Kind::kBucket;
    const std::string backward = bucket ? "backward to " + std::string(hook.bucket) : "backward, the rest";
    add_computing(forwards, backward, at, hook.began, at == began);
    const std::string name = bucket ? "encode " + std::string(hook.bucket) : "end of the step";
    double own = hook.began;
    for (const Span& span : other) {
      if (span.ended <= own || span.began >= hook.ended) continue;
      event(kEncode, name, own, span.began);
      own = std::max(own, span.ended);
    }
    event(kEncode, name, own, hook.ended);
    at = hook.ended;
  }
  if (!hooks.empty()) event(kWaits, "agree to go on", at, ended);
}

// Fills the time from the beginning of the step, or the end of a hook, to the next hook. In between a loop may go
// forward and backward several times; before the first forward pass is what the loop does between two steps.
void Trace::add_computing(const std::vector<WorkRecord>& forwards, const std::string& backward, double began,
                          double ended, bool first) {
  if (first && forwards.empty()) return event(kForward, "forward and " + backward, began, ended);
  double at = began;
  for (const WorkRecord& pass : forwards) {
    if (pass.began < at || pass.ended > ended) continue;
    const bool between = first && at == began;
    event(between ? kForward : kBackward, between ? "between the steps" : "backward", at, pass.began);
    event(kForward, "reading the batch, forward", pass.began, pass.ended);
    at = pass.ended;
  }
  event(kBackward, backward, at, ended);
}

// "sum 41 kB of fc1.weight": names the bucket during whose hook it began.
std::string Trace::name_of(const OperationRecord& op) const {
  const auto bucket = std::find_if(handed_over_.rbegin(), handed_over_.rend(), [&](const Span& span) {
    return span.began <= op.started && op.started <= span.ended;
  });
  return fmt::format("{} {}{}", op.kind, size_text(op.bytes),
                     bucket == handed_over_.rend() ? "" : " of " + bucket->name);
}

void Trace::event(int row, const std::string& name, double began, double ended) {
  if (ended - began > kTooShort) events_ += made(row, name, began, ended, "");
}

// Tenths of a microsecond on rank 0's clock. Ends are rounded as beginnings are, so that neighbours do not overlap.
double Trace::ticks(double seconds) const { return std::round(1e7 * (seconds + offset_seconds_)); }

std::string Trace::made(int row, const std::string& name, double began, double ended, const std::string& more) const {
  return fmt::format(
      ",\n"
      R"({{"name":{},"ph":"X","pid":{},"tid":{},"ts":{:.1f},"dur":{:.1f}{}}})",
      nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), rank_ + 1, row,
      ticks(began) / 10, (ticks(ended) - ticks(began)) / 10, more);
}

// Operations overlap without nesting, which events of one row must not do: each goes to the first free row.
std::string Trace::wire_events() const {
  std::vector<WireSpan> spans = wire_;
  std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.began < b.began; });
  std::vector<double> free_at;
  std::string text;
  for (const WireSpan& span : spans) {
    auto row = std::find_if(free_at.begin(), free_at.end(), [&](double free) { return free <= span.began; });
    if (row == free_at.end()) row = free_at.insert(row, 0);
    *row = span.ended;
    text +=
        made(kWire + static_cast<int>(row - free_at.begin()), span.name, span.began, span.ended,
             fmt::format(R"(,"cat":"wire","args":{{"bytes":{:.0f},"background":{}}})", span.bytes, span.background));
  }
  std::string rows;
  for (std::size_t i = 0; i < free_at.size(); ++i) {
    rows += ",\n" + named("thread_name", rank_ + 1, kWire + static_cast<int>(i), fmt::format("wire {}", i + 1));
  }
  return rows + text;
}

std::string Trace::events() const { return events_ + wire_events(); }

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
  for (std::size_t i = 0; i < kBarriers; ++i) offsets.push_back(all[i] - ends[i]);  // all begins with rank 0's
  std::nth_element(offsets.begin(), offsets.begin() + kBarriers / 2, offsets.end());
  return offsets[kBarriers / 2];
}

}  // namespace slipstream
