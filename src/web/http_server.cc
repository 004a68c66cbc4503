// SPDX-License-Identifier: Apache-2.0
#include "web/http_server.h"

#include <slipstream/base/error.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <asio/ip/tcp.hpp>
#include <asio/read_until.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <charconv>
#include <thread>
#include <vector>

#include "web/http_request.h"
#include "wire/io_thread.h"

namespace slipstream {
namespace {

using asio::ip::tcp;

constexpr int kLowPriority = 10;
constexpr std::size_t kMostDrained = 256 << 10;

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Internal Server Error";
  }
}

HttpAnswer refusal(int status) {
  return {status, "text/plain; charset=utf-8",
          std::make_shared<const std::string>(fmt::format("{} {}\n", status, reason_of(status)))};
}

// The policy is that of the page (report/page/page.html), for every answer.
std::string head_of(const HttpAnswer& answer) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\n"
      "Content-Type: {}\r\n"
      "Content-Length: {}\r\n"
      "{}"
      "Connection: close\r\n"
      "Cache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\n"
      "X-Frame-Options: DENY\r\n"
      "Referrer-Policy: no-referrer\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\n"
      "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src "
      "data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
      "\r\n",
      answer.status, reason_of(answer.status), answer.type, answer.body->size(),
      answer.status == 405 ? "Allow: GET, HEAD\r\n" : "");
}

}  // namespace

HttpServer::Place HttpServer::Place::parse(std::string_view text, std::string_view flag) {
  const std::size_t colon = text.rfind(':');
  std::string_view address = colon == std::string_view::npos ? "127.0.0.1" : text.substr(0, colon);
  const std::string_view digits = colon == std::string_view::npos ? text : text.substr(colon + 1);
  if (address.starts_with('[') && address.ends_with(']')) address = address.substr(1, address.size() - 2);
  if (address == "localhost") address = "127.0.0.1";
  Place place{std::string(address), -1};
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), place.port);
  asio::error_code no_address;
  asio::ip::make_address(place.address, no_address);
  if (no_address || problem != std::errc() || end != digits.data() + digits.size() || place.port < 0 ||
      place.port > 65535) {
    fail<ConfigError>(
        "{} {} should be a port (0: the system chooses) or ADDRESS:PORT with an address in digits, such as 8080, "
        "0.0.0.0:8080 or [::1]:8080",
        flag, text);
  }
  return place;
}

// All on the server's thread, except construction and destruction.
struct HttpServer::Server {
  // One exchange: reads a head, writes an answer, waits until the client has it.
  class Connection : public std::enable_shared_from_this<Connection> {
   public:
    Connection(tcp::socket socket, Server& server)
        : server_(server), socket_(std::move(socket)), deadline_(socket_.get_executor()) {}

    void start() {
      deadline_.expires_after(kPatience);
      deadline_.async_wait([self = shared_from_this()](const asio::error_code& error) {
        if (!error) self->close();
      });
      asio::async_read_until(socket_, asio::dynamic_buffer(head_, kMostHeadBytes), "\r\n\r\n",
                             [self = shared_from_this()](const asio::error_code& error, std::size_t bytes) {
                               if (error == asio::error::not_found) return self->write(refusal(431));
                               if (error) return self->close();
                               self->write(self->server_.answer_to(std::string_view(self->head_).substr(0, bytes)));
                             });
    }

    void close() {
      asio::error_code ignored;
      socket_.close(ignored);
      deadline_.cancel();
      std::erase_if(server_.connections, [this](const auto& one) { return one.get() == this; });
    }

   private:
    void write(HttpAnswer answer) {
      answer_ = std::move(answer);
      const bool head_only = head_.starts_with("HEAD ");
      head_ = head_of(answer_);
      std::array<asio::const_buffer, 2> parts{asio::buffer(head_), asio::buffer(*answer_.body)};
      if (head_only) parts[1] = {};
      asio::async_write(socket_, parts, [self = shared_from_this()](const asio::error_code& error, std::size_t) {
        if (error) return self->close();
        asio::error_code ignored;
        self->socket_.shutdown(tcp::socket::shutdown_send, ignored);
        self->drain();
      });
    }

    // Reads and discards whatever else the client sent: closing before that would reset the connection, and the answer
    // might be lost with it.
    void drain() {
      socket_.async_read_some(asio::buffer(rest_),
                              [self = shared_from_this()](const asio::error_code& error, std::size_t bytes) {
                                self->drained_ += bytes;
                                if (error || self->drained_ > kMostDrained) return self->close();
                                self->drain();
                              });
    }

    Server& server_;
    tcp::socket socket_;
    asio::steady_timer deadline_;
    std::string head_;  // the request's, then the answer's
    HttpAnswer answer_;
    std::array<char, 1024> rest_{};
    std::size_t drained_ = 0;
  };

  Server(const Place& place, std::string_view flag, Answer given) : answer(std::move(given)), acceptor(io), pause(io) {
    try {
      const tcp::endpoint endpoint(asio::ip::make_address(place.address), static_cast<std::uint16_t>(place.port));
      loopback = endpoint.address().is_loopback();
      acceptor.open(endpoint.protocol());
      acceptor.set_option(asio::socket_base::reuse_address(true));
      acceptor.bind(endpoint);
      acceptor.listen(static_cast<int>(kMostConnections));
    } catch (const asio::system_error& e) {
      fail<ConfigError>("{}: cannot listen on {} port {} ({}); choose another port, or 0 for any that is free", flag,
                        place.address, place.port, e.code().message());
    }
    const tcp::endpoint local = acceptor.local_endpoint();
    const std::string address = local.address().to_string();
    url = fmt::format("http://{}:{}/", local.address().is_v6() ? "[" + address + "]" : address, local.port());
    accept();
    thread = std::thread([this] {
      setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLowPriority);  // of this thread alone
      run_io(io);
    });
  }

  ~Server() {
    io.stop();
    thread.join();
  }

  void accept() {
    acceptor.async_accept([this](const asio::error_code& error, tcp::socket socket) {
      if (error) {  // most likely out of descriptors: do not retry at once
        pause.expires_after(std::chrono::seconds(1));
        pause.async_wait([this](const asio::error_code&) { accept(); });
        return;
      }
      if (connections.size() >= kMostConnections) std::shared_ptr(connections.front())->close();
      connections.push_back(std::make_shared<Connection>(std::move(socket), *this));
      connections.back()->start();
      accept();
    });
  }

  HttpAnswer answer_to(std::string_view head) const {
    const HttpRequest request = parse_request(head);
    if (request.refused != 0) return refusal(request.refused);
    if (loopback && !request.host.empty() && !names_this_machine(request.host)) return refusal(421);
    if (request.method != "GET" && request.method != "HEAD") return refusal(405);
    try {
      HttpAnswer made = answer(request.path);
      return made.body ? made : refusal(made.status);
    } catch (const std::exception&) {  // a page is not worth ending a training
      return refusal(500);
    }
  }

  Answer answer;
  std::string url;
  bool loopback = true;
  asio::io_context io;
  tcp::acceptor acceptor;
  asio::steady_timer pause;
  std::vector<std::shared_ptr<Connection>> connections;  // the oldest first
  std::thread thread;
};

HttpServer::HttpServer(const Place& place, std::string_view flag, Answer answer)
    : server_(std::make_unique<Server>(place, flag, std::move(answer))) {}

HttpServer::~HttpServer() = default;

std::string HttpServer::url() const { return server_->url; }

}  // namespace slipstream
