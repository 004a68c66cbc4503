// SPDX-License-Identifier: Apache-2.0
#include "compare/peer.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <cmath>

namespace slipstream {
namespace {

using Words = std::vector<std::string>;

TEST(Peer, IsAHookOfDdpOrAPeriodicProgramPerhapsWithItsNumber) {
  EXPECT_EQ(peer_flags("ddp"), (Words{"--hook", "none"}));
  EXPECT_EQ(peer_flags("powersgd1@1000"), (Words{"--hook", "powersgd1", "--bucket-mb", "1000"}));
  EXPECT_EQ(peer_flags("hook-lags"), (Words{"--hook", "hook-lags"}));
  EXPECT_EQ(peer_flags("torchft-diloco"), (Words{"--hook", "torchft-diloco"}));
  EXPECT_EQ(peer_flags("hivemind@16"), (Words{"--hook", "hivemind", "--period", "16"}));
  for (const char* name : {"", "dpd", "hook-", "python-", "ddp@", "ddp@0", "ddp@1x", "ddp@-1"}) {
    EXPECT_THROW(peer_flags(name), ConfigError) << name;
  }
}

TEST(Peer, WhatItPrintsIsARunWithoutBytesAndPhases) {
  const std::string line =
      R"({"peer": "ddp-none", "torch": "1.13", "task": "fashion-mnist", "model": "mlp", "parameters": 10,)"
      R"( "workers": 2,)"
      R"( "batch": 64, "steps": 20, "seed": 3, "wall_seconds": 4, "step_ms_median": 200, "compute_ms_median": 50,)"
      R"( "samples_per_second": 640, "final_loss": 0.5, "test_accuracy": 0.8,)"
      R"( "evaluations": [[10, 2.0, 0.7], [20, 4.0, 0.8]],)"
      R"( "losses": [[1, 0.2, 2.3], [2, 0.4, null]]})";
  const slipstream::Run run = peer_run("a warning\n" + line + "\n", "ddp", "100mbit");
  EXPECT_EQ(run.strategy, "ddp");
  EXPECT_EQ(run.network, "100mbit");
  EXPECT_EQ(run.seed, 3);
  EXPECT_DOUBLE_EQ(run.efficiency, 0.25);
  EXPECT_DOUBLE_EQ(run.metric_value, 0.8);
  EXPECT_TRUE(std::isnan(run.bytes_sent_per_step));
  EXPECT_EQ(run.mean.sum_ms(), 0);
  ASSERT_EQ(run.evaluations.size(), 2U);
  EXPECT_DOUBLE_EQ(run.evaluations[0].samples, 1280);
  ASSERT_EQ(run.losses.size(), 2U);
  EXPECT_TRUE(std::isnan(run.losses[1].loss));

  EXPECT_THROW(peer_run("nothing\n", "ddp", "none"), DataError);
  EXPECT_THROW(peer_run("{\"peer\": 1}\n", "ddp", "none"), DataError);
  EXPECT_THROW(peer_run("{\"peer\": \n", "ddp", "none"), DataError);
}

TEST(Peer, ItsScriptIsPartOfTheProgram) {
  EXPECT_NE(peer_script().find("DistributedDataParallel"), std::string_view::npos);
  EXPECT_TRUE(peer_script().starts_with("#!"));
}

}  // namespace
}  // namespace slipstream
