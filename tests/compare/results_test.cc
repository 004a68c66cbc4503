// SPDX-License-Identifier: Apache-2.0
#include "compare/results.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compare/texts.h"
#include "compare/writers.h"

namespace slipstream {
namespace {

struct Told {
  double accuracy, samples_per_second = 100, bytes = 4e6;
};

Run made_run(const std::string& strategy, const Told& told) {
  Run run;
  run.strategy = strategy;
  run.workers = 2;
  run.parameters = 1'000'000;  // a dense sum moves 4 MB each way
  run.step_ms_median = 1e5 / told.samples_per_second;
  run.samples_per_second = told.samples_per_second;
  run.efficiency = 0.5;
  run.hidden_fraction = 0.25;
  run.bytes_sent_per_step = run.bytes_received_per_step = told.bytes;
  run.metric = "test_accuracy";
  run.metric_value = told.accuracy;
  run.mean = {10, 1, 2, 7};
  return run;
}

CellOutcome good(Run run) { return {"", 1, std::move(run)}; }

// A grid of ssgd and lags with some seeds, and what they came to.
struct Case {
  explicit Case(std::int64_t seeds = 2) {
    grid.strategies = {"ssgd", "lags"};
    grid.seeds.clear();
    for (std::int64_t seed = 1; seed <= seeds; ++seed) grid.seeds.push_back(seed);
  }
  Results judged(const std::vector<Told>& ssgd, const std::vector<Told>& lags) {
    plan = make_plan({grid}, "p");
    outcomes.assign(plan.cells.size(), std::nullopt);
    for (std::size_t i = 0; i < ssgd.size(); ++i) outcomes[plan.rows[0].cells[i]] = good(made_run("ssgd", ssgd[i]));
    for (std::size_t i = 0; i < lags.size(); ++i) outcomes[plan.rows[1].cells[i]] = good(made_run("lags", lags[i]));
    return judge(plan, outcomes);
  }

  GridSpec grid;
  GridPlan plan;
  CellOutcomes outcomes;
};

TEST(Results, RatiosAreTakenInsideASeed) {
  Case c(3);
  // The machine was four times as slow during the second seed; the contender is twice as fast in all of them.
  const Results results = c.judged({{0.8, 100}, {0.8, 25}, {0.8, 90}}, {{0.8, 200}, {0.8, 50}, {0.8, 180}});
  EXPECT_DOUBLE_EQ(results.rows[1].over_dense.middle, 2);
  EXPECT_DOUBLE_EQ(results.rows[1].over_dense.most, 2);
  EXPECT_DOUBLE_EQ(results.rows[0].over_dense.middle, 1);
  EXPECT_TRUE(std::isnan(results.rows[1].over_16_bit.middle)) << "it is not in the grid";
}

TEST(Results, TheSixteenBitBaselineIsFoundByName) {
  Case c(1);
  c.grid.strategies = {"ssgd", "ssgd:wire=fp16"};
  const Results results = c.judged({{0.8, 100}}, {{0.8, 150}});
  EXPECT_DOUBLE_EQ(results.rows[0].over_16_bit.middle, 100.0 / 150);
  EXPECT_DOUBLE_EQ(results.rows[1].over_16_bit.middle, 1);
}

TEST(Results, AScoreIsAMeanWithItsSpreadAndADifferenceInsideTheSeeds) {
  Case c;
  const Results results = c.judged({{0.80}, {0.90}}, {{0.79}, {0.88}});
  EXPECT_NEAR(results.rows[1].score.middle, 83.5, 1e-9);
  EXPECT_NEAR(results.rows[1].score.least, 79, 1e-9);
  EXPECT_NEAR(results.rows[1].score.most, 88, 1e-9);
  EXPECT_NEAR(results.rows[1].difference, -1.5, 1e-9);
  EXPECT_EQ(score_text(results.rows[1]), "83.50 %");
  EXPECT_EQ(score_range(results.rows[1]), "79.00–88.00");
  EXPECT_EQ(difference_text(results.rows[1]), "-1.50");
  EXPECT_NEAR(results.rows[1].bytes_of_dense, 1, 1e-9);
}

TEST(Results, ALossIsBetterWhereItIsSmaller) {
  Case c(1);
  c.grid.train = {"--task", "text"};
  c.grid.limit = 2;
  (void)c.judged({{2.0}}, {{2.05}});
  for (auto& outcome : c.outcomes) outcome->run->metric = "test_loss";
  const Results results = judge(c.plan, c.outcomes);
  EXPECT_NEAR(results.rows[1].difference, 2.5, 1e-9) << "percent";
  EXPECT_EQ(difference_text(results.rows[1]), "+2.50 %");
  EXPECT_EQ(results.rows[1].holds, false);
  c.outcomes[1]->run->metric_value = 2.03;
  EXPECT_EQ(judge(c.plan, c.outcomes).rows[1].holds, true);
}

TEST(Results, ALimitHoldsOrDoesNotAndIsNotToldOfAnIncompleteRow) {
  Case c;
  c.grid.limit = 0.5;
  EXPECT_EQ(c.judged({{0.80}, {0.80}}, {{0.79}, {0.80}}).rows[1].holds, true) << "exactly at the limit";
  EXPECT_EQ(c.judged({{0.80}, {0.80}}, {{0.79}, {0.80}}).misses(c.plan), 0);
  const Results missed = c.judged({{0.80}, {0.80}}, {{0.79}, {0.798}});
  EXPECT_EQ(missed.rows[1].holds, false);
  EXPECT_EQ(missed.misses(c.plan), 1);
  const Results incomplete = c.judged({{0.80}, {0.80}}, {{0.80}});
  EXPECT_EQ(incomplete.rows[1].holds, std::nullopt);
  EXPECT_EQ(incomplete.misses(c.plan), 2) << "the limit, and the cell that is missing";
}

TEST(Results, AFailedCellIsAMissButNotOfAPeer) {
  Case c(1);
  c.grid.peers = {"ddp"};
  c.grid.links = {"none"};
  (void)c.judged({{0.8}}, {{0.8}});
  c.outcomes[2] = CellOutcome{"it died", 1, std::nullopt};
  EXPECT_EQ(judge(c.plan, c.outcomes).misses(c.plan), 0);
  c.outcomes[1] = CellOutcome{"it died", 1, std::nullopt};
  const Results results = judge(c.plan, c.outcomes);
  EXPECT_EQ(results.rows[1].failed, 1);
  EXPECT_EQ(results.misses(c.plan), 1);
}

TEST(Results, ClaimsHoldOrDoNot) {
  const auto holds = [](const Claim& claim, const Told& ssgd, const Told& lags) {
    Case c(1);
    c.grid.claims = {claim};
    return c.judged({ssgd}, {lags}).verdicts.at(0).at(0).holds;
  };
  const Claim no_worse{"no worse", {"lags", "ssgd"}, 0.5};
  EXPECT_EQ(holds(no_worse, {0.8}, {0.8, 100, 2e6}), true);
  EXPECT_EQ(holds(no_worse, {0.8}, {0.79, 100, 2e6}), false) << "worse";
  EXPECT_EQ(holds(no_worse, {0.8}, {0.8, 100, 2.1e6}), false) << "too many bytes";
  const Claim bytes{"bytes", {"lags"}, 0.25};
  EXPECT_EQ(holds(bytes, {0.8}, {0.8, 100, 1e6}), true);
  EXPECT_EQ(holds(bytes, {0.8}, {0.8, 100, 1.01e6}), false);
  const Claim formula{"formula", {"lags"}, 0.25};
  EXPECT_EQ(holds(formula, {0.8}, {0.8, 100, 1.01e6}), true) << "within 2 %";
  EXPECT_EQ(holds(formula, {0.8}, {0.8, 100, 0.9e6}), false);
  const Claim rising{"rising", {"ssgd", "lags"}, 0.3};
  EXPECT_EQ(holds(rising, {0.8}, {0.7975}), true);
  EXPECT_EQ(holds(rising, {0.8}, {0.796}), false);
  Case incomplete;
  incomplete.grid.claims = {bytes};
  EXPECT_EQ(incomplete.judged({{0.8}, {0.8}}, {{0.8}}).verdicts[0][0].holds, std::nullopt);
}

TEST(Results, TheTimeToATargetIsThatOfTheFirstEvaluationThatIsAsGood) {
  slipstream::Run run = made_run("ssgd", {0.9});
  run.evaluations = {{{10, 1.5, 0}, 0.5}, {{20, 3.0, 0}, 0.85}, {{30, 4.5, 0}, 0.84}, {{40, 6.0, 0}, 0.9}};
  EXPECT_EQ(seconds_to_target(run, 0.85), 3.0);
  EXPECT_EQ(seconds_to_target(run, 0.86), 6.0);
  EXPECT_EQ(seconds_to_target(run, 0.95), std::nullopt);
  run.metric = "test_loss";
  EXPECT_EQ(seconds_to_target(run, 0.6), 1.5);
  EXPECT_EQ(seconds_to_target(run, 0.4), std::nullopt);

  Case c;
  c.grid.target = 0.85;
  (void)c.judged({{0.9}, {0.9}}, {{0.8}, {0.8}});
  c.outcomes[0]->run->evaluations = {{{20, 3.0, 0}, 0.9}};
  c.outcomes[2]->run->evaluations = {{{20, 5.0, 0}, 0.9}};
  Results results = judge(c.plan, c.outcomes);
  EXPECT_EQ(target_text(c.grid, results.rows[0]), "4.0 s");
  EXPECT_EQ(target_text(c.grid, results.rows[1]), "not reached");
  c.outcomes[2]->run->evaluations.clear();
  results = judge(c.plan, c.outcomes);
  EXPECT_EQ(target_text(c.grid, results.rows[0]), "3.0 s (1 of 2)");
}

TEST(Results, MediansAreOfOddAndEvenNumbers) {
  EXPECT_DOUBLE_EQ(median_of({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median_of({4, 1, 2, 3}), 2.5);
  EXPECT_TRUE(std::isnan(median_of({})));
}

TEST(Results, FilesHoldTheResultBesideTheSpeedAndWhatFailed) {
  Case c;
  c.grid.limit = 0.5;
  c.grid.target = 0.79;
  c.grid.claims = {{"bytes", {"lags"}, 0.25}};
  (void)c.judged({{0.80}, {0.80}}, {{0.79, 250, 1e6}});
  c.outcomes[3] = CellOutcome{"it was killed | by <b>signal</b> 9", 1, std::nullopt};
  const Results results = judge(c.plan, c.outcomes);
  const std::string text = results_markdown(c.plan, results, c.outcomes);
  for (const char* words :
       {"| lags, failed 1 of 2 | 79.00 % |", "2.50 ×", "not reached", "0.5 points | not run |",
        "seed 2: it was killed \\| by \\<b>signal", "moves at most 0.250", "`slipstream train --strategy lags"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " in\n" << text;
  }
  const auto json = nlohmann::json::parse(results_json(c.plan, results, c.outcomes));
  const auto& lags = json["scenarios"][0]["rows"][1];
  EXPECT_EQ(lags["contender"], "lags");
  EXPECT_DOUBLE_EQ(lags["speedup_over_dense"]["median"], 2.5);
  EXPECT_NEAR(lags["result"]["mean"], 79, 1e-9);
  EXPECT_EQ(lags["cells"][1]["state"], "failed");
  EXPECT_TRUE(lags["holds"].is_null());
  EXPECT_TRUE(lags["speedup_over_16_bit"]["median"].is_null());
}

TEST(Results, ThePageShowsWhatContendersAndFailuresSayAsText) {
  Case c(1);
  c.grid.strategies = {"ssgd", "<script>alert(1)</script>"};
  c.grid.about = "<img src=x>";
  (void)c.judged({{0.8}}, {});
  c.outcomes[1] = CellOutcome{"</script><script>alert(2)</script>", 1, std::nullopt};
  const Results results = judge(c.plan, c.outcomes);
  const GridPart part = grid_part(c.plan, results, c.outcomes);
  EXPECT_EQ(part.html.find("<script"), std::string::npos);
  EXPECT_EQ(part.html.find("<img"), std::string::npos);
  EXPECT_NE(part.html.find("&lt;script&gt;alert(1)"), std::string::npos);
  const std::string page = report_page(shown_runs(c.plan, c.outcomes), part);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
}

}  // namespace
}  // namespace slipstream
