// SPDX-License-Identifier: Apache-2.0
#include "web/http_server.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <atomic>
#include <vector>

#include "kit/web_client.h"

namespace slipstream {
namespace {

using test::ask;
using test::body_of;
using test::get;
using test::request;
using test::status_of;
using test::WebClient;

class Http : public testing::Test {
 protected:
  HttpAnswer answer(std::string_view path) {
    ++asked_;
    if (path == "/big") return {200, "text/plain", std::make_shared<const std::string>(std::size_t{5} << 20, 'x')};
    if (path == "/broken") throw std::runtime_error("no page today");
    if (path != "/") return {.status = 404};
    return {200, "text/plain", std::make_shared<const std::string>("hello")};
  }

  std::atomic<int> asked_{0};
  HttpServer server_{{"127.0.0.1", 0}, "--flag", [this](std::string_view path) { return answer(path); }};
  const std::string url_ = server_.url();
};

TEST_F(Http, AnswersGetAndHead) {
  const std::string got = get(url_, "/?query=is+left+out");
  EXPECT_EQ(status_of(got), 200);
  EXPECT_EQ(body_of(got), "hello");
  for (const char* field : {"Content-Length: 5\r\n", "Content-Type: text/plain\r\n", "Cache-Control: no-store\r\n",
                            "X-Content-Type-Options: nosniff\r\n", "Connection: close\r\n",
                            "Content-Security-Policy: default-src 'none'; "}) {
    EXPECT_NE(got.find(field), std::string::npos) << field;
  }
  const std::string head = ask(url_, request("HEAD", "/"));
  EXPECT_EQ(status_of(head), 200);
  EXPECT_EQ(body_of(head), "");
  EXPECT_NE(head.find("Content-Length: 5\r\n"), std::string::npos);
}

TEST_F(Http, RefusesEveryOtherMethod) {
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "BREW"}) {
    const std::string answer = ask(url_, request(method, "/"));
    EXPECT_EQ(status_of(answer), 405) << method;
    EXPECT_NE(answer.find("Allow: GET, HEAD\r\n"), std::string::npos);
  }
  EXPECT_EQ(asked_, 0);
}

TEST_F(Http, KnowsNoOtherPaths) {
  for (const char* path : {"/nothing", "/../etc/passwd", "//", "*", "http://localhost/"}) {
    EXPECT_EQ(status_of(get(url_, path)), 404) << path;
  }
}

TEST_F(Http, RefusesWhatIsNoRequest) {
  EXPECT_EQ(status_of(ask(url_, "\x16\x03\x01\x02 garbage\r\n\r\n")), 400);
  EXPECT_EQ(status_of(ask(url_, "GET / HTTP/1.1\r\n\r\n")), 400);
  EXPECT_EQ(status_of(ask(url_, "GET / HTTP/3.0\r\nHost: a\r\n\r\n")), 505);
}

TEST_F(Http, AnErrorOfThePageIsAnAnswer) {
  EXPECT_EQ(status_of(get(url_, "/broken")), 500);
  EXPECT_EQ(status_of(get(url_, "/")), 200);
}

TEST_F(Http, OnLoopbackAnswersThisMachinesNamesOnly) {
  EXPECT_EQ(status_of(ask(url_, request("GET", "/", "evil.example"))), 421);
  EXPECT_EQ(status_of(ask(url_, request("GET", "/", "127.0.0.1:1"))), 200);
  EXPECT_EQ(asked_, 1);
}

TEST_F(Http, AHeadWithoutEndIsRefused) {
  const WebClient client(url_);
  client.say("GET / HTTP/1.1\r\n");
  const std::string field = "X-More: " + std::string(1000, 'x') + "\r\n";
  for (int i = 0; i < 100; ++i) client.say(field);
  EXPECT_EQ(status_of(client.hear()), 431);
  EXPECT_EQ(status_of(get(url_, "/")), 200);
}

TEST_F(Http, OfSeveralRequestsOnAConnectionTheFirstIsAnswered) {
  const WebClient client(url_);
  client.say(request("GET", "/") + request("GET", "/nothing") + request("GET", "/"));
  const std::string answer = client.hear();
  EXPECT_EQ(body_of(answer), "hello");
  EXPECT_EQ(asked_, 1);
}

TEST_F(Http, ARequestMayComeInPieces) {
  const WebClient client(url_);
  for (const char c : request("GET", "/")) client.say(std::string(1, c));
  EXPECT_EQ(body_of(client.hear()), "hello");
}

TEST_F(Http, OneWhoDoesNotReadKeepsNobodyElseWaiting) {
  const WebClient slow(url_);
  slow.say(request("GET", "/big"));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(body_of(get(url_, "/")), "hello");
  EXPECT_EQ(body_of(slow.hear()).size(), std::size_t{5} << 20);
}

TEST_F(Http, ConnectionsThatSayNothingMakeWay) {
  std::vector<WebClient> silent;
  for (std::size_t i = 0; i < 4 * HttpServer::kMostConnections; ++i) {
    silent.emplace_back(url_);
    if (i % 2 == 0) silent.back().say("GET / HT");
  }
  EXPECT_EQ(body_of(get(url_, "/")), "hello");
  EXPECT_EQ(silent.front().hear(), "") << "the oldest was dropped";
}

TEST_F(Http, OneWhoLeavesAtOnceHarmsNobody) {
  for (int i = 0; i < 20; ++i) {
    const WebClient client(url_);
    client.say(request("GET", "/big"));
  }
  for (int i = 0; i < 20; ++i) {
    const WebClient client(url_);
    client.end_saying();
  }
  EXPECT_EQ(body_of(get(url_, "/")), "hello");
}

TEST_F(Http, EndsWhileClientsAreConnected) {
  const WebClient silent(url_), slow(url_);
  slow.say(request("GET", "/big"));
  get(url_, "/");
}

TEST(HttpPlace, IsAPortOrAnAddressWithAPort) {
  const auto place = [](const char* text) { return HttpServer::Place::parse(text, "--dashboard"); };
  EXPECT_EQ(place("8080").address, "127.0.0.1");
  EXPECT_EQ(place("8080").port, 8080);
  EXPECT_EQ(place("0").port, 0);
  EXPECT_EQ(place("0.0.0.0:80").address, "0.0.0.0");
  EXPECT_EQ(place("[::1]:80").address, "::1");
  EXPECT_EQ(place("localhost:80").address, "127.0.0.1");
  for (const char* text : {"", "x", "-1", "65536", "80x", "host:80", "1.2.3:80", "[::1]", ":80", "1.2.3.4:", "0x50"}) {
    try {
      place(text);
      ADD_FAILURE() << text;
    } catch (const ConfigError& e) {
      EXPECT_NE(std::string(e.what()).find("--dashboard"), std::string::npos);
    }
  }
}

TEST_F(Http, APortInUseIsAnErrorThatNamesTheFlag) {
  const int port = std::atoi(url_.c_str() + url_.rfind(':') + 1);
  try {
    HttpServer second({"127.0.0.1", port}, "--flag", {});
    ADD_FAILURE();
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("--flag"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find(std::to_string(port)), std::string::npos);
  }
}

}  // namespace
}  // namespace slipstream
