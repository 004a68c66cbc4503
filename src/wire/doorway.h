// SPDX-License-Identifier: Apache-2.0
//
// Doorway: where connections come in. It accepts, greets, and hands over connections that authenticated; others are
// closed after some seconds, or when too many wait. Strangers learn nothing from it. I/O thread only; its owner is the
// LinkEvents of the links it makes.
#pragma once

#include <asio/ip/tcp.hpp>
#include <memory>
#include <vector>

#include "wire/link.h"

namespace slipstream {

class Doorway {
 public:
  static constexpr std::size_t kMaxWaiting = 64;
  static constexpr double kPatienceSeconds = 10;

  Doorway(asio::io_context& io, const std::string& address, int port);  // listens; throws ConfigError

  int port() const { return port_; }
  // Links are made from now on, with these introductions.
  void open(const TlsContext* tls, const Key& key, const Introduction& mine, LinkEvents& events);
  void close();

  bool let_in(Link& link);     // it authenticated: its owner keeps it from now on; false: it is not one of ours
  void drop_late(double now);  // closes those that take too long

 private:
  void accept();

  asio::ip::tcp::acceptor acceptor_;
  int port_ = 0;
  const TlsContext* tls_ = nullptr;
  Key key_{};
  Introduction mine_;
  LinkEvents* events_ = nullptr;
  double now_ = 0;
  std::vector<std::shared_ptr<Link>> waiting_;
};

}  // namespace slipstream
