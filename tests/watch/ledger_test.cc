// SPDX-License-Identifier: Apache-2.0
#include "watch/ledger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "task/files.h"

namespace slipstream {
namespace {

std::vector<nlohmann::json> read_lines(const std::string& path) {
  std::vector<nlohmann::json> records;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) records.push_back(nlohmann::json::parse(line));
  return records;
}

TEST(Ledger, WritesOneLineOfJsonPerStep) {
  const test::TempDir dir;
  const std::string path = dir.path() / "ledger.rank0.jsonl";
  {
    Ledger ledger(path);
    ledger.write({.t = 0, .loss = 2.5, .lr = 0.05}, 0, std::nullopt);
    ledger.write({.t = 1,
                  .loss = 2.25,
                  .lr = 0.05,
                  .seconds = 0.020,
                  .compute_seconds = 0.008,
                  .update_seconds = 0.002,
                  .encode_seconds = 0.003,
                  .exposed_seconds = 0.007,
                  .wire_seconds = 0.009,
                  .bytes_sent = 123456789,
                  .bytes_received = 42,
                  .news = "a \"plan\""},
                 3, 0xabcULL);
  }
  const auto records = read_lines(path);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0]["step"], 0);
  EXPECT_FALSE(records[0].contains("weights_hash")) << "only where it was computed";
  EXPECT_FALSE(records[0].contains("news")) << "only where there is any";
  EXPECT_EQ(records[1], nlohmann::json::parse(R"({"step":1,"epoch":3,"loss":2.25,"lr":0.05,"step_ms":20.0,
      "compute_ms":10.0,"update_ms":2.0,"encode_ms":3.0,"exposed_ms":7.0,"wire_ms":9.0,"bytes_sent":123456789,
      "bytes_received":42,"weights_hash":"0000000000000abc","news":"a \"plan\""})"));
}

TEST(Ledger, ALossThatIsNoNumberIsNull) {
  const test::TempDir dir;
  const std::string path = dir.path() / "ledger.jsonl";
  {
    Ledger ledger(path);
    ledger.write({.loss = std::nan("")}, 0, std::nullopt);
    ledger.write({.loss = -INFINITY}, 0, std::nullopt);
  }
  const auto records = read_lines(path);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_TRUE(records[0]["loss"].is_null());
  EXPECT_TRUE(records[1]["loss"].is_null());
}

TEST(Ledger, SaysWhereItCannotWrite) {
  const test::TempDir dir;
  const std::string path = dir.path() / "missing" / "ledger.jsonl";
  test::expect_error<ConfigError>([&] { Ledger ledger(path); }, {path, "No such file or directory"});
}

}  // namespace
}  // namespace slipstream
