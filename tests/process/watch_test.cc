// SPDX-License-Identifier: Apache-2.0
//
// What one sees of a job while it trains, and afterwards in its trace: --dashboard, --tensorboard, trace.json.
#include <algorithm>
#include <csignal>
#include <map>
#include <set>

#include "kit/web_client.h"
#include "lab/net_namespace.h"
#include "process/job.h"

namespace slipstream::test {
namespace {

class Watched : public Job {
 protected:
  // The address that the job tells.
  static std::string url_of(Program& job) {
    if (!job.wait_for("dashboard: http://") || !job.wait_for(kTraining)) return "";
    const std::size_t at = job.said().find("http://");
    return job.said().substr(at, job.said().find('\n', at) - at);
  }

  static double figure(const std::string& metrics, const std::string& name) {
    const std::size_t at = metrics.find("\nslipstream_" + name + "{");
    return at == std::string::npos ? -1 : std::stod(metrics.substr(metrics.find("} ", at) + 2));
  }

  static nlohmann::json data(const std::string& url) {
    return nlohmann::json::parse(body_of(get(url, "/data.json")), nullptr, false);
  }

  // What of a summary does not depend on time.
  static nlohmann::json timeless(nlohmann::json summary) {
    nlohmann::json kept;
    for (const char* key : {"strategy", "steps", "workers", "bytes_sent_per_step", "bytes_received_per_step",
                            "final_loss", "test_accuracy", "agreement", "interrupted", "seed"}) {
      kept[key] = summary.at(key);
    }
    return kept;
  }
};

TEST_F(Watched, ThePageTheDataAndTheFiguresAreServedDuringTraining) {
  Program job(endless({"--workers", "2", "--strategy", "lags", "--eval-every", "20", "--dashboard", "0"}));
  const std::string url = url_of(job);
  ASSERT_FALSE(url.empty());
  EXPECT_TRUE(url.starts_with("http://127.0.0.1:")) << url;
  ASSERT_TRUE(job.wait_until([&] { return figure(body_of(get(url, "/metrics")), "step") > 45; }));

  const std::string metrics = body_of(get(url, "/metrics"));
  expect_words(metrics, {R"(strategy="lags",model="mlp",task="images")", "# TYPE slipstream_loss gauge",
                         "slipstream_evaluation{"});
  EXPECT_EQ(figure(metrics, "workers"), 2);
  EXPECT_GT(figure(metrics, "sent_bytes_total"), 0);
  const std::string page = get(url, "/");
  expect_words(page, {"HTTP/1.1 200", "text/html", "<title>this run, live</title>", "connect-src 'self'"});

  std::int64_t before = -1;
  ASSERT_TRUE(job.wait_until([&] {  // the first question begins the timeline
    const auto run = data(url)["runs"][0];
    before = run["steps"];
    return run.contains("timeline") && run["evaluations"].size() > 1;
  }));
  EXPECT_TRUE(job.wait_until([&] { return data(url)["runs"][0]["steps"] > before; }));
  const auto now = data(url);
  EXPECT_LE(now["runs"][0]["losses"].size(), 100U);
  EXPECT_NE(now["tables"]["decisions"].get<std::string>().find("plan for a link"), std::string::npos);

  EXPECT_EQ(status_of(ask(url, request("POST", "/"))), 405);
  EXPECT_EQ(status_of(ask(url, request("DELETE", "/metrics"))), 405);
  EXPECT_EQ(status_of(get(url, "/ledger.rank0.jsonl")), 404);
  job.send(SIGINT);
  EXPECT_EQ(job.wait().exit_code, 130);
}

TEST_F(Watched, HostileClientsDoNotDisturbTheJob) {
  const Words flags{"--workers", "2", "--steps", "300", "--json"};
  const Ended alone = run(train(flags));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;

  Program job(train(flags + Words{"--dashboard", "0"}));
  const std::string url = url_of(job);
  ASSERT_FALSE(url.empty());
  std::vector<WebClient> clients;
  for (int i = 0; i < 100; ++i) {
    clients.emplace_back(url);
    if (i % 4 == 1) clients.back().say("GET / HTT");                                         // half a request
    if (i % 4 == 2) clients.back().say(std::string(600, '\xFE') + "\r\n\r\n");               // garbage
    if (i % 4 == 3) clients.back().say("GET / HTTP/1.1\r\nX: " + std::string(20'000, 'y'));  // a head without end
  }
  const auto served = std::count_if(clients.begin(), clients.end(), [](const auto& one) { return one.connected(); });
  EXPECT_GT(served, 40) << "more than the server keeps";
  const WebClient greedy(url);
  for (int i = 0; i < 50; ++i) greedy.say(request("GET", "/"));
  const Ended watched = job.wait();
  ASSERT_EQ(watched.exit_code, 0) << watched.err;
  EXPECT_EQ(timeless(nlohmann::json::parse(watched.out)), timeless(nlohmann::json::parse(alone.out)));
}

TEST_F(Watched, APortInUseIsSaidBeforeTrainingBegins) {
  const Listener taken;
  const Ended ended = run(train({"--workers", "2", "--steps", "5", "--dashboard", taken.port()}));
  expect_failure(ended, 2, {"--dashboard", taken.port()});
  EXPECT_EQ(ended.err.find(kTraining), std::string::npos) << ended.err;
}

TEST_F(Watched, WhatCannotBeWatchedIsRefused) {
  expect_failure(run(train({"--dashboard", "host:http"})), 2, {"--dashboard host:http", "ADDRESS:PORT"});
  expect_failure(run(train({"--tensorboard"})), 2, {"--tensorboard", "--out DIR"});
}

TEST_F(Watched, TheDashboardOutlivesTheLossOfRankZero) {
  const std::string port = free_port(), url = "http://127.0.0.1:" + port + "/";
  Program job(endless({"--workers", "2", "--elastic", "1:2", "--timeout", "4", "--dashboard", port}));
  ASSERT_EQ(url_of(job), url);
  kill(job.find("--rank", "0"), SIGKILL);
  ASSERT_TRUE(job.wait_for("goes on from step"));
  EXPECT_NE(job.said().find("dashboard: "), job.said().rfind("dashboard: ")) << "the next rank 0 serves it, too";
  nlohmann::json changes;
  ASSERT_TRUE(job.wait_until([&] {
    const WebClient client(url);
    client.say(request("GET", "/data.json"));
    const auto answer = nlohmann::json::parse(body_of(client.hear()), nullptr, false);
    if (answer.is_object()) changes = answer["runs"][0]["changes"];
    return !changes.empty();
  }));
  EXPECT_EQ(changes[0]["lost"], 1);
  job.send(SIGINT);
  EXPECT_EQ(job.wait().exit_code, 130);
}

TEST_F(Watched, AJobInALabIsSeenFromOutside) {
  if (!NetNamespace::permitted()) {
    expect_failure(run(train({"--lab", "100mbit", "--dashboard", "0"})), 2, {"needs root"});
    return;
  }
  Program job(endless({"--workers", "2", "--lab", "100mbit", "--dashboard", "0"}));
  const std::string url = url_of(job);
  ASSERT_FALSE(url.empty());
  EXPECT_EQ(status_of(get(url, "/metrics")), 200);
  job.send(SIGINT);
  EXPECT_EQ(job.wait().exit_code, 130);
}

// What Perfetto needs: processes and threads with names, and spans that do not overlap on their row.
TEST_F(Watched, TheTraceOfAllRanksStandsOnOneClockInRowsWithoutOverlap) {
  for (const std::string strategy : {"lags", "osp", "dasgd"}) {
    const std::string out = path(strategy);
    const Ended ended =
        run(train({"--workers", "2", "--strategy", strategy, "--accumulate", "2", "--steps", "40", "--out", out}));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    std::map<int, std::string> ranks;
    std::map<std::pair<int, int>, std::string> rows;
    std::map<std::pair<int, int>, std::map<double, double>> spans;  // began, ended
    std::set<std::string> names;
    const auto trace = read_json(out + "/trace.json");
    for (const auto& e : trace["traceEvents"]) {
      const std::pair<int, int> row{e.at("pid"), e.at("tid")};
      if (e["ph"] == "M") {
        (e["name"] == "process_name" ? ranks[row.first] : rows[row]) = e["args"]["name"];
        continue;
      }
      ASSERT_EQ(e["ph"], "X");
      EXPECT_TRUE(rows.contains(row)) << "a row without a name: " << e;
      EXPECT_TRUE(spans[row].emplace(e.at("ts"), e["ts"].get<double>() + e["dur"].get<double>()).second) << e;
      names.insert(rows[row] + ": " + e["name"].get<std::string>());
    }
    EXPECT_EQ(ranks, (std::map<int, std::string>{{1, "rank 0"}, {2, "rank 1"}}));
    for (const auto& [row, all] : spans) {
      double free = 0;
      for (const auto& [began, until] : all) {
        EXPECT_GE(began, free - 0.01) << strategy << ", rank " << row.first - 1 << ", " << rows[row];
        free = until;
      }
    }
    EXPECT_TRUE(names.contains("forward: reading the batch, forward"));
    EXPECT_TRUE(names.contains("backward: backward")) << "of the first micro-batch";
    EXPECT_TRUE(std::any_of(names.begin(), names.end(), [](const auto& name) {
      return name.starts_with("backward: backward to ") && name.find("weight") != std::string::npos;
    })) << strategy;
    // Steps of the two ranks with the same number lie side by side: one clock.
    const auto &first = spans[{1, 0}], &second = spans[{2, 0}];
    ASSERT_EQ(first.size(), second.size());
    EXPECT_LT(first.begin()->first, second.rbegin()->second);
    EXPECT_LT(second.begin()->first, first.rbegin()->second);
  }
}

}  // namespace
}  // namespace slipstream::test
