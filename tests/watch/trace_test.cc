// SPDX-License-Identifier: Apache-2.0
#include "watch/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "fabric/forwarding_fabric.h"
#include "sim/sim_world.h"

namespace slipstream {
namespace {

Traffic one_sum(double started) {
  Traffic traffic;
  traffic.operations.push_back({"sum", 8000, started, started + 0.5, started + 0.25, started + 0.5});
  return traffic;
}

void add(Trace& trace, const StepRecord& record, Traffic traffic, double ended) {
  traffic.ended = ended;
  trace.add(record, traffic);
}

nlohmann::json parse(const std::vector<std::string>& events) {
  return nlohmann::json::parse(Trace::document(events))["traceEvents"];
}

// The events of a kind ("X": with a duration).
std::vector<nlohmann::json> of_kind(const nlohmann::json& events, const std::string& kind) {
  std::vector<nlohmann::json> found;
  std::copy_if(events.begin(), events.end(), std::back_inserter(found), [&](const auto& e) { return e["ph"] == kind; });
  return found;
}

// The spans of a row.
std::vector<nlohmann::json> on_row(const nlohmann::json& events, const std::string& row) {
  std::vector<nlohmann::json> found;
  std::map<std::pair<int, int>, std::string> rows;
  for (const auto& e : events) {
    if (e["ph"] == "M" && e["name"] == "thread_name") rows[{e["pid"], e["tid"]}] = e["args"]["name"];
  }
  for (const auto& e : of_kind(events, "X")) {
    if (rows.at({e["pid"], e["tid"]}) == row) found.push_back(e);
  }
  return found;
}

void expect_span(const nlohmann::json& span, const std::string& name, double began, double lasted) {
  EXPECT_EQ(span["name"], name);
  EXPECT_DOUBLE_EQ(span["ts"], 1e6 * began) << name;
  EXPECT_DOUBLE_EQ(span["dur"], 1e6 * lasted) << name;
}

TEST(Trace, ShowsStepsWaitsAndWhatWasOnTheWire) {
  Trace trace(2, 0.0, 10);
  add(trace, {.t = 6, .seconds = 2.0}, one_sum(11.0), 12.0);
  const auto events = parse({trace.events()});
  for (const auto& event : events) EXPECT_EQ(event["pid"], 3) << "one process per rank, from 1 on";
  ASSERT_EQ(of_kind(events, "X").size(), 3U);
  expect_span(on_row(events, "steps").at(0), "step 6", 10.0, 2.0);
  expect_span(on_row(events, "waits").at(0), "wait for sum 8 kB", 11.25, 0.25);
  expect_span(on_row(events, "wire 1").at(0), "sum 8 kB", 11.0, 0.5);
  EXPECT_EQ(on_row(events, "wire 1").at(0)["args"]["bytes"], 8000);
}

TEST(Trace, SplitsAStepIntoForwardBackwardEncodeUpdateAndWaits) {
  using Kind = WorkRecord::Kind;
  Trace trace(0, 0.0, 10);
  Traffic traffic = one_sum(11.0);  // begun while the first bucket was handed over; blocked from 11.25 to 11.5
  traffic.work = {{Kind::kForward, {}, 10.125, 10.5},
                  {Kind::kBucket, "last.weight", 10.75, 11.125},
                  {Kind::kUpdate, {}, 11.5, 11.625},
                  {Kind::kStep, {}, 11.25, 11.75}};
  add(trace, {.t = 5, .seconds = 2.0}, traffic, 12.0);
  const auto events = parse({trace.events()});
  const auto forward = on_row(events, "forward");
  ASSERT_EQ(forward.size(), 2U);
  expect_span(forward[0], "between the steps", 10.0, 0.125);
  expect_span(forward[1], "reading the batch, forward", 10.125, 0.375);
  const auto backward = on_row(events, "backward");
  ASSERT_EQ(backward.size(), 2U);
  expect_span(backward[0], "backward to last.weight", 10.5, 0.25);
  expect_span(backward[1], "backward, the rest", 11.125, 0.125);
  const auto encode = on_row(events, "encode");
  ASSERT_EQ(encode.size(), 2U);
  expect_span(encode[0], "encode last.weight", 10.75, 0.375);
  expect_span(encode[1], "end of the step", 11.625, 0.125);
  expect_span(on_row(events, "update").at(0), "update", 11.5, 0.125);
  const auto waits = on_row(events, "waits");
  ASSERT_EQ(waits.size(), 2U);
  expect_span(waits[0], "wait for sum 8 kB of last.weight", 11.25, 0.25);
  expect_span(waits[1], "agree to go on", 11.75, 0.25);
}

TEST(Trace, SeveralForwardPassesHaveBackwardPassesBetweenThem) {
  using Kind = WorkRecord::Kind;
  Trace trace(0, 0.0, 10);
  Traffic traffic;
  traffic.work = {{Kind::kForward, {}, 10.0, 10.25},
                  {Kind::kForward, {}, 10.5, 10.75},
                  {Kind::kBucket, "a", 11.0, 11.125},
                  {Kind::kStep, {}, 11.5, 12.0}};
  add(trace, {.t = 5, .seconds = 2.0}, traffic, 12.0);
  const auto events = parse({trace.events()});
  EXPECT_EQ(on_row(events, "forward").size(), 2U);
  const auto backward = on_row(events, "backward");
  ASSERT_EQ(backward.size(), 3U);
  expect_span(backward[0], "backward", 10.25, 0.25);
  expect_span(backward[1], "backward to a", 10.75, 0.25);
  expect_span(backward[2], "backward, the rest", 11.125, 0.375);
}

TEST(Trace, WhereForwardIsNotToldSaysSo) {
  using Kind = WorkRecord::Kind;
  Trace trace(0, 0.0, 10);
  Traffic traffic;
  traffic.work = {{Kind::kBucket, "a", 11.0, 11.125}, {Kind::kStep, {}, 11.5, 12.0}};
  add(trace, {.t = 5, .seconds = 2.0}, traffic, 12.0);
  const auto events = parse({trace.events()});
  expect_span(on_row(events, "forward").at(0), "forward and backward to a", 10.0, 1.0);
  expect_span(on_row(events, "backward").at(0), "backward, the rest", 11.125, 0.375);
}

// The step's beginning is its end less its time, which is rounded.
TEST(Trace, AForwardPassThatBeganWithTheStepBelongsToIt) {
  using Kind = WorkRecord::Kind;
  Trace trace(0, 0.0, 10);
  Traffic traffic;
  traffic.work = {{Kind::kUpdate, {}, 9.0, 9.5},  // of the start
                  {Kind::kForward, {}, 9.9990234375, 10.5},
                  {Kind::kStep, {}, 11.0, 12.0}};
  add(trace, {.t = 5, .seconds = 2.0}, traffic, 12.0);
  const auto events = parse({trace.events()});
  ASSERT_EQ(on_row(events, "forward").size(), 1U);
  expect_span(on_row(events, "forward")[0], "reading the batch, forward", 10.0, 0.5);
  EXPECT_TRUE(on_row(events, "update").empty());
}

// Times are rounded to tenths of a microsecond.
TEST(Trace, NeighboursOfARowDoNotOverlap) {
  using Kind = WorkRecord::Kind;
  Trace trace(0, 0.0, 1000);
  double at = 1234.5;
  for (std::int64_t t = 5; t < 300; ++t) {
    const double part = 1e-5 * (1.0 + 0.0137 * static_cast<double>(t));
    Traffic traffic;
    traffic.work = {{Kind::kForward, {}, at, at + part},
                    {Kind::kBucket, "a", at + 2 * part, at + 3 * part},
                    {Kind::kStep, {}, at + 4 * part, at + 5 * part}};
    at += 5 * part;
    add(trace, {.t = t, .seconds = 5 * part}, traffic, at);
  }
  std::map<int, double> free;
  for (const auto& span : of_kind(parse({trace.events()}), "X")) {
    const double began = span["ts"], lasted = span["dur"];
    EXPECT_GE(began, free[span["tid"]] - 0.01) << span;
    free[span["tid"]] = began + lasted;
  }
}

TEST(Trace, GivesOverlappingOperationsRowsOfTheirOwn) {
  Trace trace(0, 0.0, 10);
  Traffic traffic = one_sum(1.25);
  for (const double began : {1.0, 1.5, 1.75}) traffic.operations.push_back(one_sum(began).operations[0]);
  add(trace, {.t = 5, .seconds = 1}, traffic, 2.0);
  const auto events = parse({trace.events()});
  ASSERT_EQ(on_row(events, "wire 1").size(), 2U);
  ASSERT_EQ(on_row(events, "wire 2").size(), 2U);
  EXPECT_DOUBLE_EQ(on_row(events, "wire 1")[1]["ts"], 1.5e6);
  EXPECT_DOUBLE_EQ(on_row(events, "wire 2")[1]["ts"], 1.75e6);
}

TEST(Trace, NamesAreText) {
  Trace trace(0, 0.0, 10);
  Traffic traffic;
  traffic.work = {{WorkRecord::Kind::kBucket, "a \"quoted\" \\ name", 1.25, 1.5}};
  add(trace, {.t = 5, .seconds = 1}, traffic, 2.0);
  EXPECT_EQ(on_row(parse({trace.events()}), "encode").at(0)["name"], "encode a \"quoted\" \\ name");
}

TEST(Trace, LeavesOutTheFirstStepsAndThoseBeyondItsLength) {
  Trace trace(0, 0.0, 3);
  for (std::int64_t t = 0; t < 20; ++t) add(trace, {.t = t, .seconds = 1}, {}, 100.0 + static_cast<double>(t));
  std::vector<std::string> names;
  for (const auto& span : of_kind(parse({trace.events()}), "X")) names.push_back(span["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"step 5", "step 6", "step 7"}));
}

TEST(Trace, ShowsNoWaitWhereNothingWasWaitedFor) {
  Trace trace(0, 0.0, 10);
  Traffic traffic = one_sum(1.0);
  traffic.operations[0].wait_ended = traffic.operations[0].wait_began;
  add(trace, {.t = 5, .seconds = 1}, traffic, 2.0);
  for (const auto& span : of_kind(parse({trace.events()}), "X"))
    EXPECT_NE(span["name"].get<std::string>().substr(0, 4), "wait");
}

TEST(Trace, StandsOnTheClockOfRankZero) {
  Trace trace(1, -40.0, 10);
  add(trace, {.t = 5, .seconds = 2.0}, {}, 100.0);
  EXPECT_DOUBLE_EQ(of_kind(parse({trace.events()}), "X")[0]["ts"], 1e6 * 58.0);
}

TEST(Trace, TheDocumentHoldsAllRanks) {
  const auto names = of_kind(parse({Trace(0, 0, 1).events(), Trace(1, 0, 1).events()}), "M");
  std::vector<std::string> processes;
  for (const auto& event : names) {
    if (event["name"] == "process_name") processes.push_back(event["args"]["name"]);
  }
  EXPECT_EQ(processes, (std::vector<std::string>{"rank 0", "rank 1"}));
}

// A rank whose clock goes ahead of the world's.
class AheadFabric final : public ForwardingFabric {
 public:
  AheadFabric(Fabric& inner, double seconds) : ForwardingFabric(inner), clock_(inner.clock(), seconds) {}
  Clock& clock() override { return clock_; }

 private:
  class Ahead final : public Clock {
   public:
    Ahead(Clock& inner, double seconds) : inner_(inner), seconds_(seconds) {}
    double now() const override { return inner_.now() + seconds_; }

   private:
    Clock& inner_;
    double seconds_;
  };
  Ahead clock_;
};

TEST(ClockOffset, BringsEveryRankToTheClockOfRankZero) {
  for (int ranks : {1, 2, 5}) {
    SimWorldOptions options;
    options.ranks = ranks;
    SimWorld world(options);
    const auto outcomes = world.run([](SimPort& port) {
      port.compute(0.01 * port.rank());
      AheadFabric net(port, 1000.0 * port.rank() - 7);
      EXPECT_NEAR(clock_offset(net), -1000.0 * port.rank(), 1e-9);
    });
    for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.finished()) << outcome.error;
  }
}

}  // namespace
}  // namespace slipstream
