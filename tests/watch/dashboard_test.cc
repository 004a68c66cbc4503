// SPDX-License-Identifier: Apache-2.0
#include "watch/dashboard.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "kit/web_client.h"
#include "lab/net_namespace.h"

namespace slipstream {
namespace {

using test::body_of;
using test::get;
using test::status_of;

Run hostile() {
  Run run;
  run.name = "</script><script>alert(1)</script>";
  run.strategy = "ssgd";
  return run;
}

TEST(Dashboard, ServesThePageItsDataAndTheFigures) {
  LiveRun live(hostile());
  const Dashboard dashboard("0", live, false);
  live.step({.t = 0, .loss = 2.5, .seconds = 0.5, .compute_seconds = 0.5}, {}, 32);
  const std::string page = get(dashboard.url(), "/"), data = get(dashboard.url(), "/data.json"),
                    metrics = get(dashboard.url(), "/metrics");
  EXPECT_NE(page.find("Content-Type: text/html; charset=utf-8\r\n"), std::string::npos);
  EXPECT_EQ(page.find("<script>alert(1)"), std::string::npos) << "a name is text";
  EXPECT_NE(data.find("Content-Type: application/json\r\n"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(body_of(data))["runs"][0]["losses"][0]["y"], 2.5);
  EXPECT_NE(metrics.find("Content-Type: text/plain; version=0.0.4"), std::string::npos);
  EXPECT_NE(metrics.find("slipstream_loss{"), std::string::npos);
  EXPECT_EQ(status_of(get(dashboard.url(), "/page.js")), 404);
}

TEST(Dashboard, AnswersManyWhileTheRunGoesOn) {
  LiveRun live(hostile());
  const Dashboard dashboard("0", live, false);
  std::vector<std::thread> readers;
  for (const char* path : {"/", "/data.json", "/metrics"}) {
    readers.emplace_back([&, path] {
      for (int i = 0; i < 20; ++i) EXPECT_EQ(status_of(get(dashboard.url(), path)), 200) << path;
    });
  }
  for (std::int64_t t = 0; t < 3000; ++t) live.step({.t = t, .loss = 1, .seconds = 0.5}, {}, 32);
  for (std::thread& reader : readers) reader.join();
}

TEST(Dashboard, OfALabStandsInTheNetworkOfTheParentProcess) {
  if (!NetNamespace::permitted()) {
    LiveRun live(hostile());
    EXPECT_THROW(Dashboard("0", live, true), ConfigError) << "it may not enter another network";
    return;
  }
  std::string answer;
  const NetNamespace home = NetNamespace::current(), inside;
  inside.visit([&] {
    LiveRun live(hostile());
    const Dashboard dashboard("0", live, true);
    home.visit([&] { answer = get(dashboard.url(), "/metrics"); });
  });
  EXPECT_EQ(status_of(answer), 200);
}

}  // namespace
}  // namespace slipstream
