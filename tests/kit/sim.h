// SPDX-License-Identifier: Apache-2.0
//
// Simulated jobs for tests, and what tests ask of them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "kit/fixed_chooser.h"
#include "kit/variants.h"
#include "sim/sim_job.h"

namespace slipstream::test {

// A job with all that could make a difference: layers of many sizes, momentum, weight decay and a changing rate.
inline SimJobOptions sim_job(const Variant& variant, int ranks, std::int64_t steps = 13) {
  SimJobOptions job;
  job.world.ranks = ranks;
  job.world.link = {0.0005, 20'000.0};  // a step's messages take about as long as its computing
  job.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = {6, 1, 0, 24, 2}});
  job.make_strategy = variant.configure().make;
  job.optimizer = {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01};
  job.lr = [](std::int64_t t) { return 0.1 / (1.0 + 0.1 * static_cast<double>(t)); };
  job.steps = steps;
  job.health = true;
  static const FixedChooser chooser("topk");  // for `auto`: the same on every machine
  job.chooser = &chooser;
  return job;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The weights of every rank after every step, by (rank, step).
using Diary = std::map<std::pair<int, std::int64_t>, std::vector<float>>;

inline SimJobResult run_with_diary(SimJobOptions job, Diary& diary) {
  job.on_step_end = [&diary](int rank, std::int64_t t, std::span<const float> weights) {
    diary[{rank, t}].assign(weights.begin(), weights.end());
  };
  return run_sim_job(job);
}

inline void expect_same_weights(const SimJobResult& result, const SimJobResult& expected) {
  ASSERT_EQ(result.ranks.size(), expected.ranks.size());
  for (std::size_t r = 0; r < result.ranks.size(); ++r) {
    ASSERT_TRUE(expected.ranks[r].outcome.finished()) << expected.ranks[r].outcome.error;
    ASSERT_TRUE(result.ranks[r].outcome.finished()) << result.ranks[r].outcome.error;
    EXPECT_TRUE(same_bits(result.ranks[r].weights, expected.ranks[r].weights)) << "the weights of rank " << r;
  }
}

// "rank 2 …" or "ranks 1, 2 …"
inline bool names_rank(const std::string& message, int rank) {
  return std::regex_search(message, std::regex(fmt::format("\\branks? ([0-9]+, )*{}\\b", rank)));
}

}  // namespace slipstream::test
