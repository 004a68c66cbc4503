// SPDX-License-Identifier: Apache-2.0
//
// slipstream compare: a small grid of real jobs.
#include "lab/net_namespace.h"
#include "process/job.h"

namespace slipstream::test {
namespace {

class Compare : public Job {
 protected:
  Words compare(const Words& flags, const Words& train = {"--steps", "6"}) const {
    return slipstream(Words{"compare", "--models", "mlp", "--out", path("out")} + flags +
                      Words{"--", "--task", "images", "--data", files_.path().string(), "--batch", "16"} + train);
  }
  nlohmann::json results() const { return read_json(path("out/results.json")); }

  // The one process that it has started itself.
  static pid_t child_of(const Program& job) {
    pid_t child = 0;
    EXPECT_TRUE(job.wait_until([&] {
      for (const pid_t pid : job.processes()) {
        std::string number, name, state;
        pid_t parent = 0;
        std::ifstream("/proc/" + std::to_string(pid) + "/stat") >> number >> name >> state >> parent;
        if (parent == job.pid()) child = pid;
      }
      return child != 0;
    }));
    return child;
  }

  const Words grid_{"--strategies", "ssgd", "local:period=2", "--seeds", "1", "2"};
};

TEST_F(Compare, RunsAGridOnceAndThenNothing) {
  const Words command = compare(grid_ + Words{"--target", "5%"}, {"--steps", "6", "--eval-every", "2"});
  const Ended first = run(command);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  expect_words(first.err, {"4/4", "local:period=2, seed 2", "left"});
  const auto told = results();
  ASSERT_EQ(told["scenarios"].size(), 1U);
  for (const auto& row : told["scenarios"][0]["rows"]) {
    EXPECT_EQ(row["cells_done"], 2) << row;
    for (const char* key :
         {"samples_per_second", "efficiency", "bytes_sent_per_step", "bytes_of_dense", "hidden_fraction"}) {
      EXPECT_TRUE(row[key].is_number()) << key << row;
    }
    EXPECT_GT(row["result"]["mean"], 0);
    EXPECT_GT(row["speedup_over_dense"]["median"], 0);
    EXPECT_GT(row["ms_per_step"]["compute"], 0);
    EXPECT_GT(row["seconds_to_target"], 0) << "more than one in twenty is right at some time";
  }
  EXPECT_LT(told["scenarios"][0]["rows"][1]["bytes_of_dense"], 0.75) << "local averages every second step";
  expect_words(read_text(path("out/results.md")), {"local:period=2", "time to 5 %"});
  expect_words(read_text(path("out/report.html")), {"<title>Comparison</title>", "local:period=2"});

  const Ended second = run(command);
  EXPECT_EQ(second.exit_code, 0) << second.err;
  expect_words(second.err, {"all 4 cells have run before"});
  EXPECT_EQ(results(), told);
}

TEST_F(Compare, AKilledJobIsAFailedRowAndRunsAgain) {
  Program job(compare(Words{"--strategies", "ssgd", "--seeds", "1"}, {"--steps", "100000000"}));
  const pid_t child = child_of(job);
  ASSERT_GT(child, 0);
  kill(child, SIGKILL);
  const Ended ended = job.wait();
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  EXPECT_TRUE(job.all_gone());
  const auto row = results()["scenarios"][0]["rows"][0];
  EXPECT_EQ(row["cells_failed"], 1);
  expect_words(row["cells"][0]["failed"], {"killed by signal 9"});
  expect_words(read_text(path("out/report.html")), {"killed by signal 9"});
  const Ended plan = run(compare(Words{"--strategies", "ssgd", "--seeds", "1", "--dry-run"}, {"--steps", "100000000"}));
  expect_words(plan.out, {"1 cells, 1 to run"});
}

TEST_F(Compare, CtrlCStopsAtOnceKeepsWhatHasRunAndLeavesNothing) {
  const Words short_one = compare(Words{"--strategies", "ssgd"});
  ASSERT_EQ(run(short_one).exit_code, 0);
  Program job(compare(grid_, {"--steps", "100000000"}), {}, Program::Terminal::kOwn);
  job.find("--rank", "1");
  job.type("\x03");
  const Ended ended = job.wait();
  EXPECT_EQ(ended.exit_code, 130) << ended.err;
  expect_words(ended.err, {"stopped; 0 of 4 cells are kept"});
  EXPECT_TRUE(job.all_gone());
  expect_words(run(short_one).err, {"all 1 cells have run before"});
}

TEST_F(Compare, NamesAreTextInThePage) {
  files_.write("spec.toml",
               "[[grid]]\nname = \"<script>alert(1)</script>\"\nabout = \"<img src=x onerror=alert(2)>\"\n"
               "strategies = [\"ssgd\"]\nlinks = [\"loopback\"]\n");
  const Ended ended = run(compare({"--spec", path("spec.toml")}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::string page = read_text(path("out/report.html"));
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("<img src"), std::string::npos);
  expect_words(page, {"&lt;img src=x"});
}

TEST_F(Compare, ABoundThatDoesNotHoldIsAnExitCodeOfOne) {
  const std::string grid = "strategies = [\"ssgd\"]\nclaims = [{kind = \"bytes\", of = [\"ssgd\"], value = ";
  files_.write("holds.toml", grid + "1.01}]\n");
  files_.write("not.toml", grid + "0.5}]\n");
  EXPECT_EQ(run(compare({"--spec", path("holds.toml")})).exit_code, 0);
  const Ended ended = run(compare({"--spec", path("not.toml")}));
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  expect_words(read_text(path("out/results.md")), {"ssgd moves at most 0.500", "**no**"});
}

TEST_F(Compare, WhatCannotBeRunIsSaidBefore) {
  expect_failure(run(slipstream({"compare"})), 2, {"nothing to compare", "--quick"});
  expect_failure(run(compare({"--strategies", "ssgd", "lasg"})), 2, {"lasg", "lags"});
  expect_failure(run(compare({"--strategies", "lags:densty=1"})), 2, {"densty", "density"});
  expect_failure(run(compare({"--strategies", "ssgd"}, {"--lab", "none"})), 2, {"--lab", "use links"});
  expect_failure(run(compare({"--spec", "no.toml"})), 2, {"no.toml"});
  expect_failure(run(slipstream({"compare", "--strategies", "ssgd", "--out", "/dev/null/x"})), 2, {"/dev/null/x"});
}

TEST_F(Compare, APeerIsARowAndItsEndAResult) {
  const Words flags{"--strategies", "ssgd", "--peers", "ddp", "--links", "none"};
  if (!NetNamespace::permitted()) {
    expect_failure(run(compare(flags)), 2, {"needs root"});
    return;
  }
  const Ended ended = run(compare(flags, {"--steps", "6", "--eval-every", "2"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto rows = results()["scenarios"][0]["rows"];
  ASSERT_EQ(rows[1]["cells_done"], 1) << rows[1];
  EXPECT_NEAR(rows[1]["result"]["mean"], rows[0]["result"]["mean"], 10) << "same weights, samples and rule";
  EXPECT_NEAR(rows[1]["cells"][0]["final_loss"], rows[0]["cells"][0]["final_loss"], 0.02);
  EXPECT_TRUE(rows[1]["bytes_sent_per_step"].is_null());

  const Ended died = run(compare(flags + Words{"--again", "ddp", "--python", "/bin/false"}));
  EXPECT_EQ(died.exit_code, 0) << died.err;
  const auto row = results()["scenarios"][0]["rows"][1];
  EXPECT_EQ(row["cells_failed"], 1) << row;
  expect_words(row["cells"][0]["failed"], {"exit code 1"});
}

}  // namespace
}  // namespace slipstream::test
