// SPDX-License-Identifier: Apache-2.0
//
// The program of these cells is a shell: what it does with its arguments is the test's business.
#include "compare/runner.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <fstream>

#include "compare/results.h"
#include "task/files.h"

namespace slipstream {
namespace {

// Behaves as `slipstream train … --out DIR`: the last argument is the folder.
constexpr const char* kTrains = R"(
for last; do :; done
echo ran >> "$last/../../log"
echo '{"strategy":"ssgd","workers":2,"steps":5,"step_ms_median":10,"test_accuracy":0.5}' > "$last/summary.json"
)";

class Cells : public ::testing::Test {
 protected:
  Cells() {
    GridSpec grid;
    grid.strategies = {"ssgd", "lags:density=0.1"};
    grid.seeds = {1, 2};
    plan_ = make_plan({grid}, "p");
  }

  RunRules rules(const std::string& script) const {
    RunRules made;
    made.program = {"sh", "-c", script};
    return made;
  }
  std::string log() const {
    std::ifstream file(files_.path() / "log");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string why(std::size_t cell) const {
    const auto outcome = folder_.outcome(plan_, plan_.cells[cell]);
    return outcome ? outcome->failed : "it did not run";
  }

  test::TempDir files_;
  CellFolder folder_{files_.path()};
  GridPlan plan_;
};

TEST_F(Cells, WhatHasEndedWellIsNotRunAgain) {
  EXPECT_EQ(run_plan(plan_, folder_, rules(kTrains)), Ending::kComplete);
  EXPECT_EQ(log(), "ran\nran\nran\nran\n");
  EXPECT_TRUE(cells_to_run(plan_, folder_, {}).empty());
  EXPECT_EQ(run_plan(plan_, folder_, rules("exit 1")), Ending::kComplete);
  EXPECT_EQ(why(0), "");
  EXPECT_EQ(folder_.outcome(plan_, plan_.cells[0])->run->metric_value, 0.5);
}

TEST_F(Cells, WhatFailedRunsAgainAndWhatIsNamed) {
  run_plan(plan_, folder_, rules("case \"$*\" in *seed\\ 2*) exit 7;; esac" + std::string(kTrains)));
  EXPECT_EQ(cells_to_run(plan_, folder_, {}), (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(cells_to_run(plan_, folder_, {"lags"}), (std::vector<std::size_t>{1, 2, 3}));
  EXPECT_EQ(cells_to_run(plan_, folder_, {"lags:density=0.1"}), (std::vector<std::size_t>{1, 2, 3}));
  EXPECT_NE(why(3).find("exit code 7"), std::string::npos) << why(3);
}

TEST_F(Cells, ACommandThatIsSharedRunsOnce) {
  GridSpec grid = plan_.grids[0];
  plan_ = make_plan({grid, grid}, "p");
  EXPECT_EQ(cells_to_run(plan_, folder_, {}).size(), 4U);
  EXPECT_NE(plan_text(plan_, folder_, {}).find("5  shared"), std::string::npos);
  run_plan(plan_, folder_, rules(kTrains));
  EXPECT_EQ(log(), "ran\nran\nran\nran\n");
  for (const Cell& cell : plan_.cells) EXPECT_TRUE(folder_.outcome(plan_, cell)->run) << plan_.cell_text(cell);
}

TEST_F(Cells, AFailureSaysWhatItDiedOf) {
  const Cell& cell = plan_.cells[0];
  const auto run = [&](const std::string& script, double timeout = 600) {
    EXPECT_TRUE(folder_.run({"sh", "-c", script}, cell, timeout, [] {}));
    return why(0);
  };
  EXPECT_NE(run("kill -9 $$").find("was killed by signal 9"), std::string::npos);
  EXPECT_NE(run("echo starting >&2; echo 'RuntimeError: no memory' >&2; echo end >&2; exit 3").find("no memory"),
            std::string::npos);
  EXPECT_NE(run("exit 0").find("summary.json"), std::string::npos) << "it left nothing";
  EXPECT_EQ(run("exec tail -f /dev/null", 0), "no end after 0 s");
  EXPECT_EQ(run(kTrains), "") << "what was there before is gone";
}

TEST_F(Cells, ComputeWithOneThread) {
  run_plan(plan_, folder_,
           rules("for last; do :; done; echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS > $last/threads; exit 1"));
  std::ifstream file(folder_.folder(plan_.cells[0]) / "threads");
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "1 1");
}

TEST_F(Cells, NoneBeginsAfterTheTimeIsOver) {
  RunRules late = rules(kTrains);
  late.minutes = -1;
  EXPECT_EQ(run_plan(plan_, folder_, late), Ending::kTimeOver);
  EXPECT_EQ(log(), "");
}

TEST_F(Cells, AnInterruptionKillsTheChildAndKeepsWhatHasEnded) {
  EXPECT_EQ(
      run_plan(plan_, folder_,
               rules("case \"$*\" in *lags*) kill -TERM $PPID; exec tail -f /dev/null;; esac" + std::string(kTrains))),
      Ending::kInterrupted);
  EXPECT_TRUE(folder_.finished_seconds(plan_.cells[0]));
  EXPECT_FALSE(folder_.outcome(plan_, plan_.cells[1])) << "it never ran";
  EXPECT_EQ(cells_to_run(plan_, folder_, {}).front(), 1U);
}

TEST_F(Cells, ThePlanTellsHowLongItTakes) {
  const std::string guessed = plan_text(plan_, folder_, {});
  EXPECT_NE(guessed.find("4 cells, 4 to run: about 2:00, guessed at 30 s each"), std::string::npos) << guessed;
  Durations known;
  known.add(plan_, plan_.cells[0], 10);
  EXPECT_DOUBLE_EQ(known.expect(plan_, plan_.cells[2]), 10) << "the other seed of ssgd";
  EXPECT_DOUBLE_EQ(known.expect(plan_, plan_.cells[1]), 10) << "of the same scenario";
  known.add(plan_, plan_.cells[1], 30);
  EXPECT_DOUBLE_EQ(known.expect(plan_, plan_.cells[3]), 30);
  EXPECT_DOUBLE_EQ(known.expect(plan_, plan_.cells[2]), 10);
  run_plan(plan_, folder_, rules(kTrains));
  const std::string done = plan_text(plan_, folder_, {"lags"});
  EXPECT_NE(done.find("4 cells, 2 to run"), std::string::npos) << done;
  EXPECT_EQ(done.find("guessed"), std::string::npos);
}

TEST(CauseOfDeath, IsTheFirstLineThatSpeaksOfAnErrorElseTheLast) {
  EXPECT_EQ(cause_of_death("one\n  ValueError: bad\nRuntimeError: worse\nbye\n"), "ValueError: bad");
  EXPECT_EQ(cause_of_death("one\ntwo\n\n"), "two");
  EXPECT_EQ(cause_of_death("step 1\rstep 2\rslipstream: lost worker 1\n"), "slipstream: lost worker 1");
  EXPECT_EQ(cause_of_death(""), "it said nothing");
}

}  // namespace
}  // namespace slipstream
