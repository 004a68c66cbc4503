// SPDX-License-Identifier: Apache-2.0
#include "report/report.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "report/html.h"
#include "report/news.h"
#include "report/page_data.h"
#include "report/tables.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Report : public ::testing::Test {
 protected:
  Report() : folder_(fs::temp_directory_path() / fmt::format("slipstream_report_{}", getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Report() override { fs::remove_all(folder_); }

  static json summary(const std::string& strategy) {
    return {{"strategy", strategy},
            {"options", {{"density", 0.005}, {"wire", "fp32"}}},
            {"task", "fashion-mnist"},
            {"model", "mlp"},
            {"parameters", 1863690},
            {"workers", 2},
            {"batch", 64},
            {"steps", 20},
            {"wall_seconds", 2.5},
            {"samples_per_second", strategy == "ssgd" ? 100.0 : 250.0},
            {"step_ms_median", 12.34},
            {"efficiency", 0.875},
            {"hidden_fraction", 0.5},
            {"bytes_sent_per_step", 408350.0},
            {"bytes_received_per_step", 408350.0},
            {"final_loss", 0.25},
            {"test_accuracy", 0.8431}};
  }

  static std::string step(int t, double loss, const std::string& more = "") {
    return fmt::format(
        R"({{"step":{},"epoch":0,"loss":{},"lr":0.1,"step_ms":100,"compute_ms":70,"update_ms":10,"encode_ms":5,)"
        R"("exposed_ms":25,"wire_ms":50,"bytes_sent":10,"bytes_received":10{}}})"
        "\n",
        t, loss, more);
  }

  fs::path write(const std::string& name, const json& summary, const std::vector<std::string>& ledgers = {}) {
    const fs::path run = folder_ / name;
    fs::create_directories(run);
    std::ofstream(run / "summary.json") << summary.dump();
    for (std::size_t r = 0; r < ledgers.size(); ++r) {
      std::ofstream(run / fmt::format("ledger.rank{}.jsonl", r)) << ledgers[r];
    }
    return run;
  }

  // The message of the error of kind E that reading these runs ends with.
  template <typename E>
  static std::string refusal(const std::vector<std::string>& folders) {
    try {
      read_runs(folders);
    } catch (const E& e) {
      return e.what();
    }
    ADD_FAILURE() << "no such error";
    return "";
  }

  const fs::path folder_;
};

TEST_F(Report, ALedgerGivesTheLossOfAllRanksOnTheClockOfTheSteps) {
  std::string ledgers[2];
  for (int t = 0; t < 20; ++t) {
    ledgers[0] += step(t, 1.0);
    ledgers[1] += step(t, 3.0);
    if (t == 9) ledgers[0] += "{\"step\":10,\"test_accuracy\":0.5}\n";
  }
  const slipstream::Run run = read_run(write("a", summary("ssgd"), {ledgers[0], ledgers[1]}));
  ASSERT_EQ(run.losses.size(), 20U);
  EXPECT_DOUBLE_EQ(run.losses[4].loss, 2.0);
  EXPECT_NEAR(run.losses[4].seconds, 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(run.losses[4].samples, 5 * 128);
  ASSERT_EQ(run.evaluations.size(), 2U) << "on the way, and at the end";
  EXPECT_EQ(run.evaluations[0].step, 10);
  EXPECT_NEAR(run.evaluations[0].seconds, 1.0, 1e-12);
  EXPECT_DOUBLE_EQ(run.evaluations[1].value, 0.8431);
  EXPECT_NEAR(run.mean.compute_ms, 60, 1e-9) << "without the update";
  EXPECT_NEAR(run.mean.sum_ms(), 100, 1e-9) << "the four phases add up to the step";
}

TEST_F(Report, AStepThatOnlyOneRankSawCountsAndARecoveryTakesTime) {
  const std::string lost =
      R"({"step":2,"regroup":2,"done":2,"workers":1,"lost":1,"joined":0,"written_off":0,"recovery_ms":500,"why":"gone"})"
      "\n";
  const slipstream::Run run = read_run(
      write("a", summary("ssgd"), {step(0, 1) + step(1, 1), step(0, 1) + step(1, 1) + lost + step(2, 1) + step(3, 1)}));
  ASSERT_EQ(run.losses.size(), 4U);
  EXPECT_NEAR(run.losses[3].seconds, 0.9, 1e-12);
  EXPECT_DOUBLE_EQ(run.losses[3].samples, 64 * (2 + 2 + 1 + 1));
  ASSERT_EQ(run.changes.size(), 1U);
  EXPECT_NEAR(run.changes[0].seconds, 0.7, 1e-12);
  const std::string table = changes_table({run});
  EXPECT_NE(table.find("1 lost"), std::string::npos);
  EXPECT_NE(table.find("<td class=\"n\">500</td>"), std::string::npos);
}

TEST_F(Report, TheTableHasTheResultBesideTheSpeed) {
  const std::string a = write("a", summary("ssgd")), b = write("b", summary("lags"), {step(0, 1)});
  const std::vector<slipstream::Run> runs = read_runs({a, b});
  const std::string table = summary_table(runs);
  for (const char* text : {"84.31 %", "12.3", "2.50 ×", "1.00 ×", "88 %", "408 kB", "density=0.005, wire=fp32",
                           "1.86M parameters", "waiting 25.0", "compute 60.0"}) {
    EXPECT_NE(table.find(text), std::string::npos) << text;
  }
}

TEST_F(Report, ASpeedUpIsOnlyOverARunOfTheSameKind) {
  const std::string lags = write("lags", summary("lags"));
  for (const auto& [key, value] : std::map<std::string, json>{{"model", "cnn"}, {"workers", 3}, {"batch", 7}}) {
    json other = summary("ssgd");
    other[key] = value;
    const std::vector<slipstream::Run> runs = read_runs({write("other " + key, other), lags});
    EXPECT_EQ(baseline_of(runs[1], runs), nullptr) << key;
    EXPECT_EQ(baseline_of(runs[0], runs), &runs[0]) << key;
  }
}

TEST_F(Report, WhatRunsHoldIsTextEverywhere) {
  json hostile = summary("<script>alert(2)</script>");
  hostile["options"] = {{"\"><img src=x onerror=alert(3)>", "</script><script>alert(4)</script>"}};
  const std::string news = R"(,"news":"plan: [<b>a</b>: \"quoted\" & 'so'] [c: </script>]")";
  const fs::path run = write("<script>alert(1)<", hostile, {step(0, 1, news)});
  const std::string page = report_page(read_runs({run.string()}));
  for (const char* text : {"<script>alert", "<img src=x", "<b>a</b>", "</script><script>"}) {
    EXPECT_EQ(page.find(text), std::string::npos) << text;
  }
  EXPECT_NE(page.find("&lt;script&gt;alert(1)&lt;"), std::string::npos);
  EXPECT_NE(page.find("&quot;quoted&quot; &amp; &#39;so&#39;"), std::string::npos);
  EXPECT_NE(page.find("\\u003cscript>alert(1)"), std::string::npos) << "in the data";
}

TEST_F(Report, ThePageAsksForNothingElse) {
  const std::string page = report_page(read_runs({write("a", summary("ssgd"), {step(0, 1)}).string()}));
  EXPECT_EQ(page.find(" src="), std::string::npos);
  EXPECT_EQ(page.find("href=\"http"), std::string::npos);
  EXPECT_EQ(page.find("{{"), page.find("{{", page.find("<script>"))) << "every place of the template is filled";
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("Chart.js v"), std::string::npos);
}

TEST_F(Report, ALivePageMayAskItsOwnServerOnly) {
  slipstream::Run run = read_run(write("<b>a", summary("ssgd"), {step(0, 1)}));
  const std::string page = live_page(run);
  EXPECT_NE(page.find("connect-src 'self'"), std::string::npos);
  EXPECT_EQ(report_page({run}).find("connect-src"), std::string::npos);
  EXPECT_EQ(page.find("<b>a"), std::string::npos);
  const json data = json::parse(live_data(run));
  EXPECT_EQ(data["live"], true);
  EXPECT_EQ(data["runs"].size(), 1U);
  EXPECT_EQ(data["tables"]["summary"], summary_table({run}));
  EXPECT_EQ(data["tables"]["changes"], "");
}

TEST_F(Report, TheDataHasTheSpeedUpWhereThereIsABaseline) {
  json alone = summary("lags");
  alone["model"] = "cnn";
  const auto runs = read_runs(
      {write("a", summary("ssgd")).string(), write("b", summary("lags")).string(), write("c", alone).string()});
  const json data = json::parse(page_data(runs));
  EXPECT_DOUBLE_EQ(data["runs"][0]["speedup"], 1.0);
  EXPECT_DOUBLE_EQ(data["runs"][1]["speedup"], 2.5);
  EXPECT_TRUE(data["runs"][2]["speedup"].is_null());
}

// `batch` is what a worker takes in a step, in however many micro-batches.
TEST_F(Report, MicroBatchesAreNoMoreSamples) {
  const fs::path folder = write("a", summary("ssgd"), {step(0, 1)});
  const double samples = read_run(folder).losses[0].samples;
  std::ofstream(folder / "config.toml") << "accumulate = 4\n";
  EXPECT_DOUBLE_EQ(read_run(folder).losses[0].samples, samples);
}

TEST_F(Report, NewsByLayerStandInTheirTableAndNotInEveryLine) {
  const std::string news = R"(,"news":"waited 1 ms; overlaps 1 of 2: [fc.bias: in the step] [fc.weight: overlapped]")";
  const auto run = read_run(write("a", summary("osp"), {step(0, 1, news)}));
  const std::string html = decisions({run});
  EXPECT_NE(html.find(">waited 1 ms; overlaps 1 of 2, by layer</td>"), std::string::npos) << html;
  EXPECT_NE(html.find("<th scope=\"row\">fc.weight</th><td>overlapped</td>"), std::string::npos) << html;
}

TEST_F(Report, ALongRunMakesAShortPage) {
  std::string ledger;
  for (int t = 0; t < 5000; ++t) ledger += step(t, t % 2 == 0 ? 1.0 : 3.0);
  const std::string page = report_page(read_runs({write("a", summary("ssgd"), {ledger}).string()}));
  const std::size_t at = page.find("id=\"data\">") + 10;
  const json data = json::parse(page.substr(at, page.find("</script>", at) - at));
  const json& losses = data["runs"][0]["losses"];
  EXPECT_LE(losses.size(), 100U);
  EXPECT_GT(losses.size(), 50U);
  EXPECT_EQ(losses.back()["step"], 4999);
  EXPECT_NEAR(losses[7]["y"].get<double>(), 2.0, 0.2);
}

TEST_F(Report, RunsOfTheSameNameAreToldApart) {
  const std::string a = write("x/run", summary("ssgd")), b = write("y/run/", summary("lags"));
  const auto runs = read_runs({a, b});
  EXPECT_EQ(runs[0].name, a);
  EXPECT_EQ(read_run(b).name, "run");
}

TEST_F(Report, ErrorsNameTheFileAndTheLine) {
  EXPECT_NE(refusal<DataError>({(folder_ / "nowhere").string()}).find("nowhere"), std::string::npos);
  fs::create_directories(folder_ / "empty");
  EXPECT_NE(refusal<DataError>({(folder_ / "empty").string()}).find("summary.json"), std::string::npos);
  EXPECT_NE(refusal<ConfigError>({}).find("at least one run"), std::string::npos);

  const fs::path broken = write("broken", summary("ssgd"), {step(0, 1) + "{\"step\":1,\n" + step(2, 1)});
  EXPECT_NE(refusal<DataError>({broken.string()}).find("ledger.rank0.jsonl, line 2"), std::string::npos);
  const fs::path strange = write("strange", summary("ssgd"), {step(0, 1) + "{\"step\":1,\"step_ms\":\"many\"}\n"});
  EXPECT_NE(refusal<DataError>({strange.string()}).find("line 2"), std::string::npos);

  std::ofstream(write("s", {}) / "summary.json") << "[1, 2";
  EXPECT_NE(refusal<DataError>({(folder_ / "s").string()}).find("summary.json"), std::string::npos);
  std::ofstream(write("t", summary("ssgd")) / "trace.json") << R"({"traceEvents":[{"ph":"X"}]})";
  EXPECT_NE(refusal<DataError>({(folder_ / "t").string()}).find("trace.json"), std::string::npos);
  std::ofstream(write("c", summary("ssgd")) / "config.toml") << "lab = 'x'\nlab =";
  EXPECT_NE(refusal<DataError>({(folder_ / "c").string()}).find("config.toml, line 2"), std::string::npos);
}

TEST_F(Report, ALastLineThatWasCutOffIsNoError) {
  const slipstream::Run run = read_run(write("a", summary("ssgd"), {step(0, 1) + "{\"step\":1,\"lo"}));
  EXPECT_EQ(run.losses.size(), 1U);
}

TEST_F(Report, AFileThatCannotBeWrittenIsAConfigError) {
  const auto runs = read_runs({write("a", summary("ssgd")).string()});
  EXPECT_THROW(write_report(runs, folder_ / "no" / "such" / "folder.html"), ConfigError);
  write_report(runs, folder_ / "r.html");
  EXPECT_GT(fs::file_size(folder_ / "r.html"), 100'000U);
}

TEST_F(Report, TheTimelineHoldsLateStepsWithoutAHole) {
  json events = json::array();
  for (int pid : {1, 2}) {
    events.push_back(
        {{"ph", "M"}, {"name", "process_name"}, {"pid", pid}, {"args", {{"name", fmt::format("rank {}", pid - 1)}}}});
    events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", pid}, {"tid", 0}, {"args", {{"name", "steps"}}}});
    events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", pid}, {"tid", 5}, {"args", {{"name", "wire 1"}}}});
    for (int t = 0; t < 7; ++t) {
      const double began = 1e6 + 1e3 * t + (t >= 5 ? 5e3 : 0);  // two steps after a hole
      events.push_back(
          {{"ph", "X"}, {"name", fmt::format("step {}", t)}, {"pid", pid}, {"tid", 0}, {"ts", began}, {"dur", 1e3}});
      events.push_back({{"ph", "X"}, {"name", "sum"}, {"pid", pid}, {"tid", 5}, {"ts", began + 250}, {"dur", 500}});
    }
  }
  std::ofstream(folder_ / "trace.json") << json{{"traceEvents", events}};
  const Timeline timeline = read_timeline(folder_ / "trace.json", 3);
  ASSERT_EQ(timeline.size(), 2U);
  EXPECT_EQ(timeline[1].name, "rank 1");
  ASSERT_EQ(timeline[1].rows.size(), 2U);
  EXPECT_EQ(timeline[1].rows[0].spans.size(), 3U);
  EXPECT_EQ(timeline[1].rows[1].name, "wire 1");
  EXPECT_NEAR(timeline[1].rows[1].spans[2].began_ms, 2.25, 1e-9) << "since the first of them began";
  EXPECT_EQ(timeline[1].rows[0].spans[0].name, "step 2");
  EXPECT_NEAR(timeline[1].rows[1].spans[2].lasted_ms, 0.5, 1e-9);
}

TEST(News, IsTakenApartByLayer) {
  const auto pieces =
      take_apart("memory: [a: delta 0.9, owes 3] [b.w … c.b: x: y]; plan for 1: [a: dense]; waited 3 ms");
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[0].text, "memory");
  ASSERT_EQ(pieces[0].layers.size(), 2U);
  EXPECT_EQ(pieces[0].layers[1], (std::pair<std::string, std::string>("b.w … c.b", "x: y")));
  EXPECT_EQ(pieces[1].layers.at(0).second, "dense");
  EXPECT_EQ(pieces[2].text, "waited 3 ms");
  EXPECT_TRUE(pieces[2].layers.empty());
}

TEST(News, OfAnotherFormStaysAsItIs) {
  for (const char* text : {"a: [b]", "a: [", ": []", "[", "a: [b: c] d", "]", "a: []]"}) {
    const auto pieces = take_apart(text);
    ASSERT_EQ(pieces.size(), 1U) << text;
    EXPECT_EQ(pieces[0].text, text);
    EXPECT_TRUE(pieces[0].layers.empty()) << text;
  }
  EXPECT_TRUE(take_apart("").empty());
}

TEST(Html, FiguresThatAreNoneAreDashes) {
  EXPECT_EQ(fixed_text(std::nan(""), 2), "–");
  EXPECT_EQ(bytes_text(std::nan("")), "–");
  EXPECT_EQ(bytes_text(6653000), "6.65 MB");
  EXPECT_EQ(bytes_text(12), "12 B");
}

}  // namespace
}  // namespace slipstream
