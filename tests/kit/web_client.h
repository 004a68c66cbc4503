// SPDX-License-Identifier: Apache-2.0
//
// WebClient: one connection to a web server of this machine, on which a test says what it likes, right or wrong.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace slipstream::test {

class WebClient {
 public:
  explicit WebClient(const std::string& url) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<std::uint16_t>(std::atoi(url.c_str() + url.rfind(':') + 1)));
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  WebClient(WebClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  ~WebClient() {
    if (fd_ >= 0) close(fd_);
  }

  bool connected() const { return connected_; }  // else nothing is heard

  // False: the server has closed before all had left.
  bool say(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void end_saying() const { shutdown(fd_, SHUT_WR); }

  // All that the server says until it closes.
  std::string hear() const {
    std::string text;
    std::array<char, 65536> buffer;
    for (;;) {
      pollfd one{fd_, POLLIN, 0};
      if (poll(&one, 1, 60'000) != 1) {
        ADD_FAILURE() << "the server neither answers nor closes; so far it said:\n" << text;
        return text;
      }
      const ssize_t count = recv(fd_, buffer.data(), buffer.size(), 0);
      if (count <= 0) return text;
      text.append(buffer.data(), static_cast<std::size_t>(count));
    }
  }

 private:
  int fd_;
  bool connected_ = false;
};

inline std::string ask(const std::string& url, const std::string& text) {
  const WebClient client(url);
  client.say(text);
  return client.hear();
}

inline std::string request(const std::string& method, const std::string& path, const std::string& host = "localhost") {
  return method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
}

inline std::string get(const std::string& url, const std::string& path) { return ask(url, request("GET", path)); }

inline int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::atoi(answer.c_str() + 9) : 0;
}

inline std::string body_of(const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

}  // namespace slipstream::test
