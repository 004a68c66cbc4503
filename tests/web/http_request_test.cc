// SPDX-License-Identifier: Apache-2.0
#include "web/http_request.h"

#include <gtest/gtest.h>

#include "kit/fuzz.h"

namespace slipstream {
namespace {

TEST(HttpRequest, HasMethodPathAndHost) {
  const HttpRequest request =
      parse_request("GET /data.json?a=1 HTTP/1.1\r\nAccept: */*\r\nhOsT:  LocalHost:8080 \r\n\r\n");
  EXPECT_EQ(request.refused, 0);
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/data.json");
  EXPECT_EQ(request.host, "localhost:8080");
}

TEST(HttpRequest, OfVersion10NeedsNoHost) { EXPECT_EQ(parse_request("GET / HTTP/1.0\r\n\r\n").refused, 0); }

TEST(HttpRequest, ThatIsNoneIsRefused) {
  for (const char* head : {"\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
                           "G(T / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
                           "GET / FTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
                           "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
                           "GET / HTTP/1.1\r\n folded\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost\r\n\r\n"}) {
    EXPECT_EQ(parse_request(head).refused, 400) << head;
  }
  EXPECT_EQ(parse_request("GET / HTTP/2.0\r\nHost: a\r\n\r\n").refused, 505);
}

TEST(HttpRequest, AnyBytesAreReadOrRefused) {
  const std::string good = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (std::uint64_t seed = 0; seed < test::fuzz_seeds(200); ++seed) {
    std::string head = good;
    for (std::size_t i = 0; i <= seed % 4; ++i) {
      const std::uint64_t drawn = (seed + 1) * 0x9E3779B97F4A7C15ULL >> (8 * i);
      head[drawn % head.size()] = static_cast<char>(drawn >> 32);
    }
    const HttpRequest request = parse_request(head);
    EXPECT_TRUE(request.refused != 0 || !request.method.empty());
  }
}

TEST(HttpHost, OnlyThisMachinesNamesMeanThisMachine) {
  for (const char* host : {"localhost", "localhost:80", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:80", "10.0.0.7"})
    EXPECT_TRUE(names_this_machine(host)) << host;
  for (const char* host : {"", "evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "[::1", ":80"})
    EXPECT_FALSE(names_this_machine(host)) << host;
}

}  // namespace
}  // namespace slipstream
