// SPDX-License-Identifier: Apache-2.0
//
// HttpServer: a small HTTP/1.1 server for read-only pages. It answers GET and HEAD, one request per connection, and
// refuses everything else. One thread of its own does all the work, at low priority; `answer` is called there.
//
// Clients may be slow, broken or hostile: a request's head has at most kMostHeadBytes, an exchange lasts at most
// kPatience, and with more than kMostConnections the oldest is dropped. No client can keep the thread from the others.
// On a loopback address only requests to names of this machine are answered, so that a web page whose name was made to
// point here learns nothing. No TLS, no files, no state that a request could change.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace slipstream {

struct HttpAnswer {
  int status = 200;
  std::string type{};                         // of the body
  std::shared_ptr<const std::string> body{};  // shared between connections
};

class HttpServer {
 public:
  static constexpr std::size_t kMostHeadBytes = 8192;
  static constexpr std::size_t kMostConnections = 32;
  static constexpr std::chrono::seconds kPatience{20};

  // Path without its query, such as "/metrics".
  using Answer = std::function<HttpAnswer(std::string_view path)>;

  // Where to listen: "PORT" (loopback), "ADDRESS:PORT" or "[ADDRESS]:PORT"; port 0: the system chooses. ConfigError,
  // naming `flag`, for any other text.
  struct Place {
    std::string address;
    int port = 0;
    static Place parse(std::string_view text, std::string_view flag);
  };

  // Listens and begins to answer. ConfigError, naming `flag`, where the port is in use.
  HttpServer(const Place& place, std::string_view flag, Answer answer);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const;  // "http://127.0.0.1:8080/"

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

}  // namespace slipstream
