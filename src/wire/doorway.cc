// SPDX-License-Identifier: Apache-2.0
#include "wire/doorway.h"

#include <slipstream/base/error.h>

#include <algorithm>

namespace slipstream {

Doorway::Doorway(asio::io_context& io, const std::string& address, int port) : acceptor_(io) {
  try {
    const asio::ip::tcp::endpoint endpoint(asio::ip::make_address(address), static_cast<std::uint16_t>(port));
    acceptor_.open(endpoint.protocol());
    acceptor_.set_option(asio::socket_base::reuse_address(true));
    acceptor_.bind(endpoint);
    acceptor_.listen(256);
    port_ = acceptor_.local_endpoint().port();
  } catch (const std::exception& e) {
    fail<ConfigError>(
        "cannot listen on {} port {}: the port is in use or not ours to take ({}); choose another with "
        "--master-port, or another --interface",
        address, port, e.what());
  }
}

void Doorway::open(const TlsContext* tls, const Key& key, const Introduction& mine, LinkEvents& events) {
  tls_ = tls;
  key_ = key;
  mine_ = mine;
  events_ = &events;
  accept();
}

void Doorway::accept() {
  acceptor_.async_accept([this](const asio::error_code& error, asio::ip::tcp::socket socket) {
    if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
    if (!error) {
      if (waiting_.size() >= kMaxWaiting) {
        const auto oldest = waiting_.front();
        waiting_.erase(waiting_.begin());
        oldest->close();
      }
      auto link = std::make_shared<Link>(std::move(socket), tls_, Side::kAccepts, key_, mine_, *events_);
      link->opened_at = now_;
      waiting_.push_back(link);
      link->start();
      std::erase_if(waiting_, [](const auto& one) { return one->closed(); });
    }
    if (acceptor_.is_open()) accept();
  });
}

void Doorway::close() {
  asio::error_code ignored;
  acceptor_.close(ignored);
  for (auto& link : std::exchange(waiting_, {})) link->close();
}

bool Doorway::let_in(Link& link) {
  return std::erase_if(waiting_, [&](const auto& one) { return one.get() == &link; }) > 0;
}

void Doorway::drop_late(double now) {
  now_ = now;
  for (auto& link : waiting_) {
    if (now - link->opened_at > kPatienceSeconds) link->close();
  }
  std::erase_if(waiting_, [](const auto& one) { return one->closed(); });
}

}  // namespace slipstream
