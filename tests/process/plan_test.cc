// SPDX-License-Identifier: Apache-2.0
#include "process/job.h"

namespace slipstream::test {
namespace {

nlohmann::json planned(const Words& flags) {
  const Ended ended = run(slipstream(Words{"plan", "--json"} + flags));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return nlohmann::json::parse(ended.out);
}

TEST(Plan, MeasuresTheModelOnLocalWorkersAndPredictsOtherLinksAndNumbersFromThat) {
  const TempDir data;
  write_images(data);
  const auto plans =
      planned({"--task", "images", "--data", data.path().string(), "--batch", "16", "--model", "mlp", "--workers", "2",
               "--link", "none", "10mbit,5ms", "--for", "2", "3", "--strategies", "ssgd", "topk"});
  ASSERT_EQ(plans.size(), 4U);
  EXPECT_EQ(plans[0]["workers"], 2);
  EXPECT_EQ(plans[3]["workers"], 3);
  EXPECT_EQ(plans[2]["link"], "10mbit,5ms");
  EXPECT_NEAR(plans[2]["link_mbit"].get<double>(), 9.5, 1e-9);
  EXPECT_GE(plans[2]["link_ms"].get<double>(), 5.0);
  EXPECT_EQ(plans[0]["parameters"], 64 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10);
  EXPECT_EQ(plans[0]["tensors"], 6);
  EXPECT_GT(plans[0]["compute_ms"].get<double>(), 0);
  for (const auto& plan : plans) EXPECT_EQ(plan["strategies"].size(), 2U);
  EXPECT_GT(plans[2]["strategies"][0]["step_ms"].get<double>(), 2 * plans[2]["strategies"][1]["step_ms"].get<double>());
}

TEST(Plan, RefusesWhatMakesNoSense) {
  const Words given{"plan", "--parameters", "1e6", "--compute-ms", "10"};
  for (const auto& [flags, word] : std::vector<std::pair<Words, std::string>>{
           {given, "--link"},
           {given + Words{"--link", "none"}, "rate"},
           {given + Words{"--link", "fast"}, "fast"},
           {given + Words{"--link", "1gbit,5ms,1%"}, "loss"},
           {given + Words{"--link", "1gbit", "--for", "5000"}, "1024"},
           {given + Words{"--link", "1gbit", "--tensors", "0"}, "--tensors"},
           {given + Words{"--link", "1gbit", "--strategies", "dasdg"}, "dasgd"},
           {{"plan", "--parameters", "1e6"}, "--compute-ms"},
           {{"plan", "--parameters", "-1", "--compute-ms", "10", "--link", "1gbit"}, "--parameters"},
           {{"plan", "--model", "cmn"}, "cnn"}}) {
    const Ended ended = run(slipstream(flags));
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_NE(ended.err.find(word), std::string::npos) << ended.err;
  }
}

}  // namespace
}  // namespace slipstream::test
