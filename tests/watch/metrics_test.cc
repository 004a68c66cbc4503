// SPDX-License-Identifier: Apache-2.0
#include "watch/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <set>
#include <sstream>

namespace slipstream {
namespace {

LiveRun::Figures some() {
  LiveRun::Figures f{.name = "a", .strategy = "lags", .task = "images", .model = "mlp"};
  f.last = {.t = 6, .loss = 0.5, .lr = 0.1};
  f.sum = {.seconds = 8, .compute_seconds = 5, .update_seconds = 1, .encode_seconds = 0.5, .exposed_seconds = 1.5};
  f.sum.bytes_sent = 1e9;
  f.steps = 7;
  f.workers = 3;
  f.metric = "test_accuracy";
  f.metric_value = 0.875;
  f.metric_steps = 5;
  return f;
}

TEST(Metrics, HaveTheFiguresOfTheRun) {
  const std::string text = prometheus_text(some());
  const std::string labels = R"({run="a",strategy="lags",model="mlp",task="images")";
  for (const std::string& line : std::vector<std::string>{
           "slipstream_step" + labels + "} 7\n", "slipstream_loss" + labels + "} 0.5\n",
           "slipstream_learning_rate" + labels + "} 0.1\n", "slipstream_step_seconds_total" + labels + "} 8\n",
           "slipstream_phase_seconds_total" + labels + ",phase=\"exposed\"} 1.5\n",
           "slipstream_sent_bytes_total" + labels + "} 1000000000\n", "slipstream_workers" + labels + "} 3\n",
           "slipstream_evaluation" + labels + ",metric=\"test_accuracy\"} 0.875\n",
           "slipstream_evaluation_step" + labels + "} 5\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
  }
}

// The grammar of the exposition format, line by line: a family's HELP and TYPE come before its samples, once.
TEST(Metrics, AreWrittenAsPrometheusReadsThem) {
  const std::regex help("# HELP (slipstream_[a-z_]+) \\S.*"), type("# TYPE (slipstream_[a-z_]+) (gauge|counter)"),
      sample(R"((slipstream_[a-z_]+)\{([a-z]+="([^"\\\n]|\\["\\n])*",?)+\} (NaN|[+-]Inf|[-+0-9.e]+))");
  std::istringstream lines(prometheus_text(some()));
  std::string family;
  std::set<std::string> families;
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (std::regex_match(line, found, help)) {
      family = found[1];
      EXPECT_TRUE(families.insert(family).second) << line;
    } else if (std::regex_match(line, found, type)) {
      EXPECT_EQ(found[1], family);
      EXPECT_EQ(found[2] == "counter", family.ends_with("_total")) << line;
    } else {
      ASSERT_TRUE(std::regex_match(line, found, sample)) << line;
      EXPECT_EQ(found[1], family);
    }
  }
  EXPECT_GE(families.size(), 12U);
}

TEST(Metrics, LabelsAreText) {
  LiveRun::Figures f = some();
  f.name = "a\"b\\c\nd";
  EXPECT_NE(prometheus_text(f).find(R"(run="a\"b\\c\nd",)"), std::string::npos);
}

TEST(Metrics, ALossThatIsNoNumberIsSaid) {
  LiveRun::Figures f = some();
  f.last.loss = std::nan("");
  EXPECT_NE(prometheus_text(f).find("} NaN\n"), std::string::npos);
}

TEST(Metrics, BeforeTheFirstStepThereIsNoLossAndNoEvaluation) {
  const std::string text = prometheus_text({});
  EXPECT_EQ(text.find("slipstream_loss"), std::string::npos);
  EXPECT_EQ(text.find("slipstream_evaluation"), std::string::npos);
  EXPECT_NE(text.find("slipstream_step{"), std::string::npos);
}

}  // namespace
}  // namespace slipstream
