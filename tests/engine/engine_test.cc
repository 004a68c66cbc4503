// SPDX-License-Identifier: Apache-2.0
//
// The loop itself. That strategies train by it what they should is shown by the oracle and conformance suites, which
// run the same engine.
#include "engine/engine.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <array>
#include <cmath>
#include <string>

#include "sim/sim_world.h"

namespace slipstream {
namespace {

const std::vector<Parameter> kThreeSlots{{"first", 4}, {"middle", 1}, {"last", 3}};

// Writes down the calls; sums the gradients of every bucket and works `encode_s` in every hook.
struct Witness final : Strategy {
  explicit Witness(std::vector<std::string>* calls = nullptr, std::function<void()> work = {})
      : calls_(calls), work_(std::move(work)) {}
  BucketRule buckets() const override { return BucketRule::per_slot(); }
  void on_start(Step& s) override {
    note(fmt::format("start {} lr {}", s.t, s.opt.lr()));
    float one = 1;
    s.net.sum(std::span(&one, 1)).wait();
  }
  void on_bucket_ready(Step& s, const Bucket& bucket) override {
    note(fmt::format("bucket {}", bucket.index));
    sums_.push_back(s.net.sum(s.model.grads(bucket)));
  }
  void on_step(Step& s) override {
    note(fmt::format("step {} lr {} loss {}", s.t, s.opt.lr(), s.loss));
    if (work_) work_();
    for (InFlight& sum : sums_) sum.wait();
    sums_.clear();
    s.opt.step(s.model.weights(), s.model.grads(), 1.0F / static_cast<float>(s.net.size()));
  }
  void on_finish(Step& s) override { note(fmt::format("finish {} lr {}", s.t, s.opt.lr())); }
  void visit(StateVisitor&) override {}
  std::string news() override { return "news"; }

  void note(std::string call) {
    if (calls_ != nullptr) calls_->push_back(std::move(call));
  }
  std::vector<std::string>* calls_;
  std::function<void()> work_;
  std::vector<InFlight> sums_;
};

std::vector<RankOutcome> run(int ranks, const std::function<void(SimPort&)>& body) {
  SimWorldOptions options{.ranks = ranks};
  options.link = {0.0, 1000.0};
  return SimWorld(options).run(body);
}

TEST(Engine, CallsTheHooksInOrderAndReleasesAtTheStepWhatBackwardDidNotReport) {
  std::vector<std::string> calls;
  run(1, [&](SimPort& port) {
    FlatModel model(kThreeSlots);
    Engine engine(port, model, std::make_unique<Witness>(&calls),
                  {.lr = [](std::int64_t t) { return 0.5 / static_cast<double>(t + 1); }});
    engine.slot_ready(0);  // its bucket is the last of the plan
    calls.emplace_back("first reported");
    engine.slot_ready(2);
    engine.step(7);
    engine.step(8);
    EXPECT_EQ(engine.t(), 2);
    engine.finish();
  });
  EXPECT_EQ(calls, (std::vector<std::string>{"start 0 lr 0.5", "first reported", "bucket 0", "bucket 1", "bucket 2",
                                             "step 0 lr 0.5 loss 7", "bucket 0", "bucket 1", "bucket 2",
                                             "step 1 lr 0.25 loss 8", "finish 2 lr 0.25"}));
}

TEST(Engine, GoesOnWhereASavedJobStopped) {
  std::vector<std::string> calls;
  run(1, [&](SimPort& port) {
    FlatModel model({});
    Engine engine(port, model, std::make_unique<Witness>(&calls),
                  {.lr = [](std::int64_t t) { return static_cast<double>(t); }});
    engine.go_on_from(5);
    EXPECT_EQ(engine.step(1).t, 5);
    EXPECT_EQ(engine.t(), 6);
  });
  EXPECT_EQ(calls, (std::vector<std::string>{"start 0 lr 0", "step 5 lr 5 loss 1"}));
}

TEST(Engine, StartsWithTheWeightsOfRankZeroAndLeavesGradientsZeroed) {
  run(3, [](SimPort& port) {
    FlatModel model(kThreeSlots);
    std::fill(model.weights().begin(), model.weights().end(), 2.0F + static_cast<float>(port.rank()));
    Engine engine(port, model, std::make_unique<Witness>(), {.optimizer = {.lr = 0.5, .momentum = 0}});
    for (const float w : model.weights()) EXPECT_EQ(w, 2.0F);
    std::fill(model.grads().begin(), model.grads().end(), static_cast<float>(port.rank()));
    engine.step(1);
    for (const float w : model.weights()) EXPECT_EQ(w, 1.5F);
    for (const float g : model.grads()) EXPECT_EQ(g, 0.0F);
  });
}

TEST(Engine, ARecordHoldsTheTrafficOfItsStepAlone) {
  run(2, [](SimPort& port) {
    FlatModel model(kThreeSlots);
    Engine engine(port, model, std::make_unique<Witness>(), {});
    EXPECT_DOUBLE_EQ(engine.start_record().bytes_sent, 4.0);
    int records = 0;
    engine.on_record = [&](const StepRecord& record, const Traffic& traffic) {
      EXPECT_EQ(record.t, records++);
      EXPECT_DOUBLE_EQ(record.bytes_sent, 32.0);
      EXPECT_DOUBLE_EQ(record.bytes_received, 32.0);
      EXPECT_EQ(traffic.operations.size(), 3U);
      EXPECT_EQ(record.news, "news");
    };
    for (int t = 0; t < 3; ++t) engine.step(1);
    EXPECT_EQ(records, 3);
    engine.finish();
    EXPECT_EQ(engine.finish_record().bytes_sent, 0.0);
  });
}

TEST(Engine, ARecordSaysWhenTheHooksRanAndTheWeightsMoved) {
  run(1, [](SimPort& port) {
    FlatModel model(kThreeSlots);
    Engine engine(port, model, std::make_unique<Witness>(nullptr, [&] { port.compute(0.5); }), {});
    engine.on_record = [&](const StepRecord& record, const Traffic& traffic) {
      using Kind = WorkRecord::Kind;
      ASSERT_EQ(traffic.work.size(), 5U);
      for (std::size_t i = 0; i < 3; ++i) {  // backward reaches the last slot first
        EXPECT_EQ(traffic.work[i].kind, Kind::kBucket);
        EXPECT_EQ(traffic.work[i].bucket, model.slots()[2 - i].name);
      }
      const WorkRecord &update = traffic.work[3], &step = traffic.work[4];
      EXPECT_EQ(update.kind, Kind::kUpdate);
      EXPECT_EQ(step.kind, Kind::kStep);
      EXPECT_DOUBLE_EQ(step.ended - step.began, 0.5);
      EXPECT_LE(step.began, update.began);
      EXPECT_LE(update.ended, step.ended);
      EXPECT_DOUBLE_EQ(step.ended, port.clock().now());
      EXPECT_DOUBLE_EQ(record.seconds, 0.5);
    };
    engine.step(1);
    engine.step(1);
  });
}

// A fabric of one rank whose clock ticks each time it is read: every stretch between two readings has a length.
class TickingFabric final : public Fabric {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Clock& clock() override { return clock_; }
  InFlight sum(std::span<float>, Wire) override { return {}; }
  InFlight gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::copy(mine.begin(), mine.end(), all.begin());
    return {};
  }
  InFlight send(int, Tag, std::span<const std::byte>, std::span<const std::byte>) override { return {}; }
  InFlight recv(int, Tag, std::span<std::byte>, std::span<std::byte>) override { return {}; }
  void announce(const std::string&) override {}
  void listen(Tag, Listener*) override {}

 private:
  struct Ticking final : Clock {
    double now() const override { return ++ticks; }
    mutable double ticks = 0;
  };
  Ticking clock_;
};

TEST(Engine, AStepWithoutDataHasNoGradientsOfItsOwnSaysSoAndItsWaitIsExposed) {
  TickingFabric alone;
  FlatModel model(kThreeSlots);
  Engine engine(alone, model, std::make_unique<Witness>(), {});
  engine.step(3);
  const std::vector<float> before(model.weights().begin(), model.weights().end());
  std::fill(model.grads().begin(), model.grads().end(), 1.0F);  // left over
  for (int i = 0; i < 9; ++i) alone.clock().now();              // waits for others
  const StepRecord record = engine.step_without_data();
  EXPECT_EQ(record.t, 1);
  EXPECT_EQ(record.loss, 3) << "of its last batch";
  EXPECT_NE(record.news.find("no data of its own"), std::string::npos);
  EXPECT_GE(record.exposed_seconds, 9);
  EXPECT_EQ(record.compute_seconds + record.update_seconds + record.encode_seconds + record.exposed_seconds,
            record.seconds);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), model.weights().begin()));
  EXPECT_EQ(engine.step(1).news.find("no data"), std::string::npos);
}

TEST(Engine, ThePhasesOfAStepAddUp) {
  TickingFabric alone;
  FlatModel model(kThreeSlots);
  Engine engine(alone, model, std::make_unique<Witness>(), {});
  for (int t = 0; t < 3; ++t) {
    const StepRecord& r = engine.step(1);
    EXPECT_EQ(r.compute_seconds + r.update_seconds + r.encode_seconds + r.exposed_seconds, r.seconds);
    EXPECT_EQ(r.update_seconds, 1) << "one optimizer step, between two readings";
    EXPECT_GT(r.encode_seconds, 0);
    EXPECT_GT(r.compute_seconds, 0);
    EXPECT_EQ(r.useful_seconds(), r.compute_seconds + 1);
  }
}

TEST(Engine, WorkInAHookIsEncodeAndWaitingIsExposed) {
  run(2, [](SimPort& port) {
    FlatModel model(kThreeSlots);
    const auto work = [&port] { port.compute(0.25); };
    Engine engine(port, model, std::make_unique<Witness>(nullptr, work), {.health = false});
    port.compute(1.0);
    const StepRecord& r = engine.step(1);
    EXPECT_NEAR(r.compute_seconds, 1.0, 1e-9);
    EXPECT_NEAR(r.encode_seconds, 0.25, 1e-9);
    EXPECT_NEAR(r.wire_seconds, 0.032, 1e-9);
    EXPECT_NEAR(r.exposed_seconds, 0.0, 1e-9) << "the sums ended while the strategy worked";
    EXPECT_NEAR(r.seconds, 1.25, 1e-9);
    EXPECT_EQ(r.update_seconds, 0.0) << "a simulated optimizer takes no time";
  });
}

// What each rank's loop was stopped with, and after how many steps.
template <typename E>
std::vector<std::string> stopped_by(int ranks, const EngineOptions& options,
                                    const std::function<double(int rank, Engine& engine, FlatModel& model)>& loss) {
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  run(ranks, [&](SimPort& port) {
    FlatModel model(kThreeSlots);
    Engine engine(port, model, std::make_unique<Witness>(), options);
    try {
      while (engine.t() < 50) {
        port.compute(0.3 * (port.rank() + 1));
        engine.step(loss(port.rank(), engine, model));
      }
    } catch (const E& e) {
      ends[static_cast<std::size_t>(port.rank())] = fmt::format("{} after {} steps", e.what(), engine.t());
      engine.finish();
    }
  });
  return ends;
}

TEST(Engine, ALossThatIsNotFiniteStopsAllRanksAtOneStepAndNamesItsOrigin) {
  const auto ends = stopped_by<DivergedError>(3, {}, [](int rank, Engine& engine, FlatModel& model) {
    if (rank != 1 || engine.t() != 4) return 1.0;
    model.grads()[5] = NAN;
    return static_cast<double>(NAN);
  });
  for (const std::string& end : ends) EXPECT_EQ(end, ends[0]);
  for (const char* word : {"rank 1", "step 4 ", "'last'"}) EXPECT_NE(ends[0].find(word), std::string::npos) << ends[0];
}

TEST(Engine, AStopFlagStopsAllRanksAtOneStepAndIsSpent) {
  std::atomic<bool> stop{false};
  const auto ends = stopped_by<Interrupted>(3, {.stop = &stop}, [&](int rank, Engine& engine, FlatModel&) {
    if (rank == 2 && engine.t() == 4) stop = true;
    return 1.0;
  });
  EXPECT_NE(ends[0].find("stopped after step"), std::string::npos) << ends[0];
  for (const std::string& end : ends) EXPECT_EQ(end, ends[0]);
  EXPECT_FALSE(stop);
}

TEST(Engine, TheRankThatWasAskedToStopIsNamed) {
  std::array<std::atomic<bool>, 3> stops{};
  run(3, [&](SimPort& port) {
    FlatModel model(kThreeSlots);
    Engine engine(port, model, std::make_unique<Witness>(), {.stop = &stops[static_cast<std::size_t>(port.rank())]});
    stops[1] = true;
    try {
      for (int t = 0; t < 50; ++t) engine.step(1);
      ADD_FAILURE() << "was not stopped";
    } catch (const Interrupted& e) {
      EXPECT_EQ(e.what(), fmt::format("stopped after step {}, as rank 1 was asked to", engine.t()));
    }
  });
}

// However short the run: the loss of its only step is not finite, and no exchange follows that could tell.
TEST(Engine, FinishRefusesALossThatNoStepHadTimeToReport) {
  std::vector<std::string> ends(3), calls;
  run(3, [&](SimPort& port) {
    FlatModel model(kThreeSlots);
    Engine engine(port, model, std::make_unique<Witness>(port.rank() == 0 ? &calls : nullptr), {});
    engine.step(port.rank() == 2 ? INFINITY : 1.0);
    try {
      engine.finish();
    } catch (const DivergedError& e) {
      ends[static_cast<std::size_t>(port.rank())] = e.what();
    }
    if (port.rank() == 0) {
      EXPECT_NE(calls.back(), "finish 1 lr 0.05") << "it refuses first";
    }
    engine.finish();  // who wants the weights all the same
  });
  EXPECT_EQ(calls.back(), "finish 1 lr 0.05");
  for (const std::string& end : ends) {
    EXPECT_EQ(end, ends[0]);
    EXPECT_NE(end.find("rank 2 is not a finite number at step 0 "), std::string::npos) << end;
  }
}

TEST(Engine, TellsWhichBucketsTheStrategyHasUsed) {
  struct Picky final : Strategy {
    BucketRule buckets() const override { return BucketRule::per_slot(); }
    void on_bucket_ready(Step& s, const Bucket& bucket) override { s.left_alone = bucket.index == 1; }
    void on_step(Step&) override {}
    void visit(StateVisitor&) override {}
  };
  struct Idle final : Strategy {
    void on_step(Step&) override {}
    void visit(StateVisitor&) override {}
  };
  run(1, [](SimPort& port) {
    const auto taken = [&port](std::unique_ptr<Strategy> strategy) {
      FlatModel model(kThreeSlots);
      Engine engine(port, model, std::move(strategy), {});
      std::vector<int> buckets;
      engine.on_taken = [&](const Bucket& bucket) { buckets.push_back(bucket.index); };
      engine.step(1);
      return buckets;
    };
    EXPECT_EQ(taken(std::make_unique<Picky>()), (std::vector<int>{0, 2}));
    EXPECT_TRUE(taken(std::make_unique<Idle>()).empty()) << "it does not look at buckets at all";
  });
}

TEST(Engine, WithoutHealthNobodyIsAskedAndNoTimePasses) {
  run(2, [](SimPort& port) {
    FlatModel model(kThreeSlots);
    Engine engine(port, model, std::make_unique<Witness>(), {.health = false});
    const double began = port.clock().now();
    for (int t = 0; t < 9; ++t) engine.step(NAN);
    EXPECT_NEAR(port.clock().now() - began, 9 * 0.032, 1e-9) << "the strategy's sums alone";
  });
}

}  // namespace
}  // namespace slipstream
