// SPDX-License-Identifier: Apache-2.0
#include "fabric/mesh_fabric.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <limits>

#include "fabric/mesh_sum.h"
#include "fabric/own_address.h"
#include "fabric/sum_rule.h"
#include "fabric/wire.h"

namespace slipstream {
namespace {

class Message final : public Pending {
 public:
  Message(std::shared_ptr<MeshCore> mesh, std::string what, MeshCommand::Kind kind, int peer, Tag tag,
          std::uint64_t number, std::span<std::byte> bytes, std::span<std::byte> more)
      : Pending(std::move(mesh), std::move(what), 1) {
    set(0, peer, tag, number, bytes, more);
    const MeshCommand command{kind, &transfer(0)};
    start(std::span(&command, 1));
  }
  ~Message() override { settle(); }
};

MeshOptions mesh_options(const Rendezvous& at, const std::string& address) {
  MeshOptions o;
  o.rank = at.rank;
  o.ranks = at.size + at.servers;
  o.workers = at.size;
  o.serves = at.serves();
  o.elastic = at.elastic();
  o.hub = {at.master_addr, at.master_port};
  o.supervised = at.supervised;
  o.key = at.key;
  o.encrypted = at.encrypted;
  o.address = address;
  o.streams = at.streams;
  o.interrupted = at.interrupted;
  o.timeout_seconds = at.timeout_seconds;
  o.join_timeout_seconds = at.join_timeout_seconds;
  return o;
}

// Joins only to tell the others why we cannot take part.
void tell_early(const Rendezvous& at, const std::string& why) {
  MeshOptions o = mesh_options(at, "");
  o.early_failure = why;
  o.join_timeout_seconds = std::min(o.join_timeout_seconds, 5.0);
  try {
    const Mesh told(o);
  } catch (const std::exception&) {  // our own message comes back
  }
}

// A newcomer that nobody can reach, because of a firewall, for example, must not keep the others from going on.
constexpr int kTriesOfNewcomer = 3;

// In an elastic job a group may fail before all are connected: the rendezvous forms another.
std::unique_ptr<Mesh> met(const MeshOptions& options, int tries) {
  for (int left = tries;; --left) {
    try {
      return std::make_unique<Mesh>(options);
    } catch (const GroupFailed&) {
      if (left == 1) throw;
    }
  }
}

}  // namespace

MeshFabric::MeshFabric(const Rendezvous& rendezvous, const std::function<void(int port)>& publish) : at_(rendezvous) {
  const int ranks = at_.size + at_.servers;
  address_ = "127.0.0.1";
  if (ranks > 1 || at_.elastic()) {
    if (at_.hosts) {
      const std::string chosen = at_.interface.empty() ? "" : interface_match(at_.interface, "");
      hub_ = std::make_unique<Hub>(HubOptions{.address = chosen.empty() ? resolved(at_.master_addr) : chosen,
                                              .port = at_.master_port,
                                              .ranks = ranks,
                                              .workers = at_.size,
                                              .key = at_.key,
                                              .encrypted = at_.encrypted,
                                              .timeout_seconds = at_.timeout_seconds,
                                              .join_timeout_seconds = at_.join_timeout_seconds,
                                              .tells = true,
                                              .elastic = {at_.min_workers, at_.max_workers}});
      at_.master_port = hub_->port();
      if (publish) publish(at_.master_port);
    }
    try {
      if (at_.interface.empty()) {
        address_ = address_towards(at_.master_addr, at_.master_port);
      } else {
        address_ = interface_match(at_.interface, "");
        if (address_.empty()) {
          fail<ConfigError>("there is no network interface '{}' with an IPv4 address here", at_.interface);
        }
      }
    } catch (const ConfigError& e) {
      tell_early(at_, e.what());
      throw;
    }
  }
  const std::string name = interface_match("", address_);
  interface_ = name.empty() ? address_ : address_ + " on " + name;
  mesh_ = met(mesh_options(at_, address_), kTriesOfNewcomer);
  if (!at_.elastic()) hub_.reset();
}

MeshFabric::~MeshFabric() = default;

InFlight MeshFabric::sum(std::span<float> values, Wire wire) {
  if (size() == 1 || values.empty()) return {};
  const auto reserve = [this](Tag tag, const std::vector<std::uint64_t>& sends, std::uint64_t receives) {
    MessageNumbers numbers;
    for (int r = 0; r < size(); ++r) {
      std::uint64_t& send = *this->numbers(true, r, tag);
      std::uint64_t& receive = *this->numbers(false, r, tag);
      numbers.send.push_back(send);
      numbers.receive.push_back(receive);
      if (r == rank()) continue;
      send += sends[static_cast<std::size_t>(r)];
      receive += receives;
    }
    return numbers;
  };
  if (is_short_sum(static_cast<double>(values.size() * wire_width(wire)), size())) {
    const auto numbers = reserve(kShortSumTag, std::vector<std::uint64_t>(static_cast<std::size_t>(size()), 1), 1);
    return InFlight(std::make_unique<MeshExchange>(mesh_->shared(), size(), values, wire, numbers));
  }
  if (dense_ && wire == Wire::kFp32) return dense_->sum(values);
  if (goes_whole(static_cast<double>(values.size() * wire_width(wire)), size())) {
    const std::uint64_t send = *numbers(true, 1 - rank(), kPairTag), receive = *numbers(false, 1 - rank(), kPairTag);
    *numbers(true, 1 - rank(), kPairTag) += PairSum::messages(values.size());
    *numbers(false, 1 - rank(), kPairTag) += PairSum::messages(values.size());
    return InFlight(std::make_unique<PairSum>(mesh_->shared(), values, wire, send, receive));
  }
  const auto messages = MeshSum::messages(values.size(), size());
  const std::uint64_t own = messages[static_cast<std::size_t>(rank())];
  const auto reduce = reserve(kReduceTag, messages, own);
  // Results go the other way: ours to all ranks, each owner's to us.
  MessageNumbers spread;
  for (int r = 0; r < size(); ++r) {
    std::uint64_t& send = *numbers(true, r, kSpreadTag);
    std::uint64_t& receive = *numbers(false, r, kSpreadTag);
    spread.send.push_back(send);
    spread.receive.push_back(receive);
    if (r == rank()) continue;
    send += own;
    receive += messages[static_cast<std::size_t>(r)];
  }
  return InFlight(std::make_unique<MeshSum>(mesh_->shared(), size(), values, wire, reduce, spread));
}

InFlight MeshFabric::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  check(all.size() == mine.size() * static_cast<std::size_t>(size()), "gather of {} bytes into {} over {} ranks",
        mine.size(), all.size(), size());
  if (mine.empty()) return {};
  if (size() == 1) {
    std::copy(mine.begin(), mine.end(), all.begin());
    return {};
  }
  MessageNumbers numbers;
  for (int r = 0; r < size(); ++r) {
    numbers.send.push_back((*this->numbers(true, r, kGatherTag))++);
    numbers.receive.push_back((*this->numbers(false, r, kGatherTag))++);
  }
  return InFlight(std::make_unique<MeshExchange>(mesh_->shared(), size(), mine, all, numbers));
}

InFlight MeshFabric::send(int to, Tag tag, std::span<const std::byte> bytes, std::span<const std::byte> more) {
  if (bytes.empty() && more.empty()) return {};
  return InFlight(std::make_unique<Message>(
      mesh_->shared(), fmt::format("send of {} bytes to {}", bytes.size() + more.size(), mesh_->core().name(to)),
      MeshCommand::Kind::kSend, to, tag, (*numbers(true, to, tag))++, sendable(bytes), sendable(more)));
}

InFlight MeshFabric::recv(int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more) {
  if (bytes.empty() && more.empty()) return {};
  return InFlight(std::make_unique<Message>(
      mesh_->shared(), fmt::format("receive of {} bytes from {}", bytes.size() + more.size(), mesh_->core().name(from)),
      MeshCommand::Kind::kReceive, from, tag, (*numbers(false, from, tag))++, bytes, more));
}

void MeshFabric::announce(const std::string& text) { mesh_->core().fail(text); }

Fabric::Servers MeshFabric::servers() const {
  return at_.servers > 0 ? Servers{mesh_->ranks() - size(), size()} : Fabric::servers();
}

void MeshFabric::holds_training() {
  holds_ = true;
  if (at_.elastic()) mesh_->holds_training();
}

void MeshFabric::regroup() {
  if (!at_.elastic()) return Fabric::regroup();
  MeshOptions options = mesh_options(at_, address_);
  options.epoch = mesh_->epoch();
  options.last_rank = mesh_->rank();
  options.holds = holds_;
  mesh_->leave();
  numbers_.clear();
  mesh_ = met(options, std::numeric_limits<int>::max());
}

void MeshFabric::listen(Tag tag, Listener* listener) { mesh_->core().listen(tag, listener); }

}  // namespace slipstream
