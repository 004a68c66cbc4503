// SPDX-License-Identifier: Apache-2.0
//
// Parameter groups mean the same with every strategy: what is registered takes part. Rates and decays are powers of two
// apart, so that a factor of a group and the same factor of the optimizer's own rate round alike.
#include <gtest/gtest.h>

#include "kit/sim.h"

namespace slipstream {
namespace {

using test::sim_job;
using test::Variant;

struct Kind {
  const char* name;
  OptimizerOptions optimizer;
};

const Kind kKinds[] = {
    {"nesterov", {.lr = 0.0625, .momentum = 0.9, .nesterov = true, .weight_decay = 0.03125}},
    {"adam", {.kind = "adam", .lr = 0.0625, .weight_decay = 0.0}},
    {"adamw", {.kind = "adamw", .lr = 0.0625, .weight_decay = 0.125}},
};

SimJobOptions job_of(const Variant& variant, int ranks, int servers, const OptimizerOptions& optimizer) {
  SimJobOptions job = sim_job(variant, ranks);
  job.servers = servers;
  job.optimizer = optimizer;
  job.lr = [lr = optimizer.lr](std::int64_t t) { return lr / static_cast<double>(1 + t % 2); };
  return job;
}

std::vector<std::string> names() {
  const Registry registry = Registry::builtin();
  std::vector<std::string> all;
  for (const StrategyInfo& info : registry.all()) all.push_back(info.name);
  return all;
}

class GroupsOf : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Registry, GroupsOf, testing::ValuesIn(names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Two groups, together the whole model, with half the rate and twice the decay, against an optimizer with these.
TEST_P(GroupsOf, AllParametersWithOneRuleAreAnOptimizerWithThatRule) {
  const bool serves = Registry::builtin().configure(GetParam(), {}).make()->needs_servers();
  for (const Kind& kind : kKinds) {
    for (const int ranks : {1, 2, 3}) {
      for (const int servers : serves ? std::vector{0, 1, 2} : std::vector{0}) {
        SCOPED_TRACE(fmt::format("{}, {} workers, {} servers", kind.name, ranks, servers));
        OptimizerOptions whole = kind.optimizer, grouped = kind.optimizer;
        whole.lr /= 2;
        whole.weight_decay *= 2;
        grouped.groups = {{.names = {"layer[03]"}, .lr_factor = 0.5, .weight_decay = whole.weight_decay},
                          {.names = {"layer[124]"}, .lr_factor = 0.5, .weight_decay = whole.weight_decay}};
        const Variant variant{GetParam(), {}};
        test::expect_same_weights(run_sim_job(job_of(variant, ranks, servers, grouped)),
                                  run_sim_job(job_of(variant, ranks, servers, whole)));
      }
    }
  }
}

// The elements of this task know nothing of each other, and with these settings the strategies send all of them: each
// tensor moves as it would if its rule were everybody's.
TEST(Groups, EachTensorMovesByItsOwnRule) {
  const Variant variants[] = {
      {"ssgd", {}},
      {"local", {}},
      {"dasgd", {"period=4", "delay=2"}},
      {"cocod", {}},
      {"diloco", {}},
      {"overlap-local", {}},
      {"streaming-diloco", {}},
      {"bsp", {}},
      {"ssp", {}},
      {"asgd", {}},
      {"r2sp", {}},
      {"ssd", {}},
      {"ssd", {"accumulate_push=true"}},
      {"osp", {"cap=0"}},
      {"topk", {"density=1"}},
      {"gtopk", {"density=1"}},
  };
  for (const Variant& variant : variants) {
    for (const Kind& kind : kKinds) {
      if (variant.set == std::vector<std::string>{"accumulate_push=true"} && kind.optimizer.kind != "sgd") continue;
      for (const int ranks : {1, 2, 3}) {
        // Who comes first would depend on how long the setup with the groups is on its way.
        if (ranks > 1 && variant.configure().follows_clock()) continue;
        SCOPED_TRACE(fmt::format("{}, {}, {} workers", variant.name(), kind.name, ranks));
        OptimizerOptions grouped = kind.optimizer, slow = kind.optimizer, plain = kind.optimizer;
        grouped.groups = {{.names = {"layer3"}, .lr_factor = 0.25}, {.names = {"layer0"}, .weight_decay = 0.0}};
        slow.lr /= 4;
        plain.weight_decay = 0;
        const auto weights = [&](const OptimizerOptions& optimizer) {
          const SimJobResult result = run_sim_job(job_of(variant, ranks, 0, optimizer));
          EXPECT_TRUE(result.agreement()) << result.ranks[0].outcome.error;
          return result.ranks[0].weights;
        };
        const auto mixed = weights(grouped), of_slow = weights(slow), of_plain = weights(plain),
                   of_rest = weights(kind.optimizer);
        ASSERT_EQ(mixed.size(), 33U);  // layers of 6, 1, 0, 24 and 2
        for (std::size_t i = 0; i < mixed.size(); ++i) {
          const auto& expected = i < 6 ? of_plain : i < 7 || i >= 31 ? of_rest : of_slow;
          EXPECT_NEAR(mixed[i], expected[i], 1e-6) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace slipstream
