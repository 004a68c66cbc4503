// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_messages.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cstring>

namespace slipstream {

struct SimMessages::Message {
  int from = 0, to = 0;
  std::vector<std::byte> bytes;
  double left_at = 0.0, arrives_at = 0.0;
  bool refused = false;  // the sender is told
  bool lost = false;     // the receiver waits in vain
};

struct SimMessages::Expected {
  std::shared_ptr<Message> message;  // null until it is sent
};

class SimMessages::SendOperation final : public SimOperation {
 public:
  SendOperation(SimCore& core, std::string what, std::shared_ptr<Message> message, std::span<const std::byte> bytes,
                std::span<const std::byte> more)
      : SimOperation(core, message->from, std::move(what), bytes, more), message_(std::move(message)) {}

 private:
  double settles_at() const override { return message_->refused ? deadline() : message_->left_at; }
  const void* subject() const override { return message_.get(); }
  void conclude() override {
    if (!message_->refused) return;
    fail<FabricError>("{}: rank {} did not take it within {} s{}; see whether it still runs and can be reached", what_,
                      message_->to, core_.timeout_s, core_.faults.known_lost(message_->to));
  }

  std::shared_ptr<Message> message_;
};

class SimMessages::RecvOperation final : public SimOperation {
 public:
  RecvOperation(SimCore& core, int rank, int from, std::string what, std::shared_ptr<Expected> expected,
                std::span<std::byte> bytes, std::span<std::byte> more)
      : SimOperation(core, rank, std::move(what), bytes, more),
        from_(from),
        expected_(std::move(expected)),
        bytes_(bytes),
        more_(more) {}

 private:
  double settles_at() const override {
    return arrives() ? std::max(issued_at_, expected_->message->arrives_at) : deadline();
  }
  const void* subject() const override { return expected_.get(); }
  void conclude() override {
    if (!arrives()) {
      fail<FabricError>("{}: nothing came from rank {} within {} s{}; see whether it still runs and can be reached",
                        what_, from_, core_.timeout_s, core_.faults.known_lost(from_));
    }
    const auto& sent = expected_->message->bytes;
    check(sent.size() == bytes_.size() + more_.size(),
          "{}: the message has {} bytes; both sides must agree on the size", what_, sent.size());
    if (!bytes_.empty()) std::memcpy(bytes_.data(), sent.data(), bytes_.size());
    if (!more_.empty()) std::memcpy(more_.data(), sent.data() + bytes_.size(), more_.size());
  }
  bool arrives() const { return expected_->message && !expected_->message->lost; }

  const int from_;
  std::shared_ptr<Expected> expected_;
  std::span<std::byte> bytes_, more_;
};

void SimMessages::check_peer(int rank, int peer, std::string_view what) const {
  check(peer >= 0 && peer < core_.ranks && peer != rank,
        "{} on rank {} names rank {}; its peers are among ranks 0 to {}", what, rank, peer, core_.ranks - 1);
}

void SimMessages::remember(const std::shared_ptr<Message>& message) {
  if (core_.faults.empty()) return;
  const double now = core_.scheduler.now();
  std::erase_if(under_way_, [now](const auto& old) { return old->arrives_at <= now; });
  under_way_.push_back(message);
}

InFlight SimMessages::send(int from, int to, Tag tag, std::span<const std::byte> bytes,
                           std::span<const std::byte> more) {
  const std::size_t size = bytes.size() + more.size();
  const std::string what = fmt::format("send of {} bytes to rank {} (tag {})", size, to, tag);
  check_peer(from, to, what);
  if (size == 0) return {};
  auto message = std::make_shared<Message>();
  message->from = from;
  message->to = to;
  message->bytes.reserve(size);
  message->bytes.insert(message->bytes.end(), bytes.begin(), bytes.end());
  message->bytes.insert(message->bytes.end(), more.begin(), more.end());
  message->refused = core_.faults.crashed(to) || core_.faults.separating(from, to) != nullptr;
  message->lost = core_.faults.drops_next(from, to) || message->refused;
  const auto passage = core_.ports.send(from, to, static_cast<double>(size), core_.scheduler.now());
  message->left_at = passage.left_at;
  message->arrives_at = passage.arrives_at;
  remember(message);

  Channel& channel = channels_[{from, to, tag}];
  if (channel.expected.empty()) {
    channel.sent.push_back(message);
    core_.wake_waiting_for(mailbox(to), core_.scheduler.now());  // so that it sees which one arrives first
  } else {
    auto expected = std::move(channel.expected.front());
    channel.expected.pop_front();
    if (channel.expected.empty()) channels_.erase({from, to, tag});
    expected->message = message;
    if (!message->lost) core_.wake_waiting_for(expected.get(), message->arrives_at);
  }
  return InFlight(std::make_unique<SendOperation>(core_, what, std::move(message), bytes, more));
}

InFlight SimMessages::recv(int to, int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more) {
  std::string what = fmt::format("recv of {} bytes from rank {} (tag {})", bytes.size() + more.size(), from, tag);
  check_peer(to, from, what);
  if (bytes.empty() && more.empty()) return {};
  auto expected = std::make_shared<Expected>();
  Channel& channel = channels_[{from, to, tag}];
  if (channel.sent.empty()) {
    channel.expected.push_back(expected);
  } else {
    expected->message = std::move(channel.sent.front());
    channel.sent.pop_front();
    if (channel.sent.empty()) channels_.erase({from, to, tag});
  }
  return InFlight(std::make_unique<RecvOperation>(core_, to, from, std::move(what), std::move(expected), bytes, more));
}

// Puts the rank to sleep until something has arrived for it; of several, the first to arrive.
SimLetter SimMessages::next(int to) {
  core_.scheduler.check_stopped();
  const double deadline = core_.scheduler.now() + core_.timeout_s;
  auto& awaited = core_.awaited[static_cast<std::size_t>(to)];
  for (;;) {
    auto first = channels_.end();
    for (auto it = channels_.begin(); it != channels_.end(); ++it) {
      auto& sent = it->second.sent;
      while (!sent.empty() && sent.front()->lost) sent.pop_front();
      if (std::get<1>(it->first) != to || sent.empty()) continue;
      if (first == channels_.end() || sent.front()->arrives_at < first->second.sent.front()->arrives_at) first = it;
    }
    const double due = first == channels_.end() ? deadline : first->second.sent.front()->arrives_at;
    if (first != channels_.end() && due <= core_.scheduler.now()) {
      SimLetter letter{std::get<0>(first->first), std::get<2>(first->first),
                       std::move(first->second.sent.front()->bytes)};
      first->second.sent.pop_front();
      if (first->second.sent.empty()) channels_.erase(first);
      return letter;
    }
    if (core_.scheduler.now() >= deadline) {
      fail<FabricError>("rank {}: nothing came from anybody within {} s{}; see whether they still run", to,
                        core_.timeout_s, core_.faults.known_lost(-1));
    }
    awaited = {mailbox(to)};
    core_.scheduler.sleep_until(std::min(due, deadline), SimScheduler::Sleep::kWaiting);
    awaited.clear();
  }
}

void SimMessages::lose_rank(int rank) {
  const double now = core_.scheduler.now();
  for (auto& message : under_way_) {
    if (message->from == rank && message->left_at > now) message->lost = true;
    if (message->to == rank && message->left_at > now) message->refused = true;
  }
}

void SimMessages::cut(const Fault& partition) {
  const double now = core_.scheduler.now();
  for (auto& message : under_way_) {
    if (!partition.separates(core_.hosts.of(message->from), core_.hosts.of(message->to)) || message->arrives_at <= now)
      continue;
    message->lost = true;
    message->refused = message->refused || message->left_at > now;
  }
}

}  // namespace slipstream
