// SPDX-License-Identifier: Apache-2.0
#include "topology/server_shard.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/vec.h"

namespace slipstream {
namespace {

using Kind = ServerMessage::Kind;
using Apply = ServerSetup::Apply;

constexpr double kKeptScore = 0.9;  // share of the old importance that is kept at an update

// State as bytes, written or read in the order it is visited.
class StateWriter final : public StateVisitor {
 public:
  void floats(std::string_view, std::span<float> values) override { add(std::as_bytes(values)); }
  void integer(std::string_view, std::int64_t& value) override { add(std::as_bytes(std::span(&value, 1))); }
  std::vector<std::byte> bytes;

 private:
  void add(std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); }
};

class StateReader final : public StateVisitor {
 public:
  explicit StateReader(std::span<const std::byte> bytes) : left(bytes) {}
  void floats(std::string_view, std::span<float> values) override { take(std::as_writable_bytes(values)); }
  void integer(std::string_view, std::int64_t& value) override { take(std::as_writable_bytes(std::span(&value, 1))); }
  std::span<const std::byte> left;

 private:
  void take(std::span<std::byte> out) {
    check(out.size() <= left.size(), "a server's saved state is too short");
    if (!out.empty()) std::memcpy(out.data(), left.data(), out.size());
    left = left.subspan(out.size());
  }
};

}  // namespace

ShardServer::ShardServer(int server, int workers)
    : server_(server),
      workers_(workers),
      set_up_(static_cast<std::size_t>(workers)),
      queues_(2 * static_cast<std::size_t>(workers)) {}

std::vector<ShardServer::Reply> ShardServer::handle(Tag lane, const ServerMessage& message, ServerPayload payload) {
  require(message.from >= 0 && message.from < workers_, message, "it is not from a worker of this job");
  require(lane == kUrgent || lane == kBackground, message, "there is no such lane");
  require(message.kind <= Kind::kWeights || ready(), message, "not all workers have introduced themselves");
  switch (message.kind) {
    case Kind::kSetup:
      begin(message, payload);
      request(message, lane);
      break;
    case Kind::kWeights:
      set_weights(message, payload);
      break;
    case Kind::kPush:
    case Kind::kPushPull: {
      Part& part = part_of(message);
      check_push(part, message, payload);
      // Noted before the push can be applied: the reply shows the weights right after that.
      if (message.kind == Kind::kPushPull) request(message, lane);
      push(part, message, std::move(payload));
      break;
    }
    case Kind::kWriteState:
      require(slowest() == message.after, message, "the server is not idle");
      write_state(payload);
      request(message, lane);
      break;
    case Kind::kPull:
    case Kind::kAwait:
    case Kind::kReadState:
      request(message, lane);
      break;
    case Kind::kBye:
      break;
    case Kind::kReply:
      refuse(message, "servers do not take replies");
  }
  if (ready()) answer_idle();

  std::vector<Reply> replies;
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    for (auto& queue = queues_[q]; !queue.empty() && queue.front()->ready; queue.pop_front()) {
      replies.push_back(
          {static_cast<int>(q / 2), static_cast<Tag>(q % 2), queue.front()->answer, std::move(queue.front()->payload)});
    }
  }
  return replies;
}

void ShardServer::begin(const ServerMessage& message, const ServerPayload& payload) {
  const auto bytes = payload.bytes();
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  require(!set_up_[static_cast<std::size_t>(message.from)], message, "it has introduced itself already");
  if (setups_ == 0) {
    setup_ = ServerSetup::from_text(text);
    setup_text_ = text;
    const auto workers = static_cast<std::size_t>(workers_);
    for (const std::size_t count : setup_.counts) {
      Part part;
      part.weights.resize(count);
      part.optimizer = make_optimizer(setup_.optimizer, count);
      part.received.resize(workers);
      part.applied.resize(workers);
      part.turns.resize(workers);
      parts_.push_back(std::move(part));
    }
  }
  require(text == setup_text_, message, "its model, strategy or optimizer differs from the other workers'");
  set_up_[static_cast<std::size_t>(message.from)] = true;
  ++setups_;
}

void ShardServer::set_weights(const ServerMessage& message, const ServerPayload& payload) {
  Part& part = part_of(message);
  require(message.from == 0, message, "the first weights are worker 0's to tell");
  require(message.part == weighed_, message, "it is out of order");
  require(payload.bytes().size() == std::span(part.weights).size_bytes(), message, "its payload has another size");
  vec::copy(part.weights, payload.floats());
  ++weighed_;
}

void ShardServer::check_push(const Part& part, const ServerMessage& message, const ServerPayload& payload) const {
  const auto worker = static_cast<std::size_t>(message.from);
  require(message.round == part.received[worker], message,
          fmt::format("it is out of order: round {} comes next", part.received[worker]));
  require(payload.bytes().size() == std::span(part.weights).size_bytes(), message,
          fmt::format("its payload has {} bytes, the part {}", payload.bytes().size(),
                      std::span(part.weights).size_bytes()));
  if (setup_.apply == Apply::kArrival || setup_.apply == Apply::kTurns) return;
  const auto ahead = static_cast<std::size_t>(message.round - part.updates);
  if (ahead >= part.rounds.size()) return;
  const Round& round = part.rounds[ahead];
  require(round.lr == message.value, message,
          fmt::format("its learning rate is {}, that of rank {} is {}", message.value, round.first, round.lr));
}

void ShardServer::push(Part& part, const ServerMessage& message, ServerPayload payload) {
  const auto worker = static_cast<std::size_t>(message.from);
  switch (setup_.apply) {
    case Apply::kMean:
    case Apply::kMeanByArrival:
      add_to_round(part, message, std::move(payload));
      break;
    case Apply::kArrival:
      ++part.received[worker];
      ++part.applied[worker];
      apply(part, payload.floats(), message.value);
      break;
    case Apply::kTurns:
      ++part.received[worker];
      part.turns[worker].emplace_back(std::move(payload), message.value);
      for (;;) {
        const auto next = static_cast<std::size_t>(part.updates % workers_);
        auto& line = part.turns[next];
        if (line.empty()) break;
        const auto [gradient, lr] = std::move(line.front());
        line.pop_front();
        ++part.applied[next];
        apply(part, gradient.floats(), lr);
      }
      break;
  }
}

void ShardServer::add_to_round(Part& part, const ServerMessage& message, ServerPayload payload) {
  const auto worker = static_cast<std::size_t>(message.from);
  const auto ahead = static_cast<std::size_t>(message.round - part.updates);
  while (part.rounds.size() <= ahead) {
    part.rounds.emplace_back();
    part.rounds.back().early.resize(static_cast<std::size_t>(workers_));
    part.rounds.back().lr = message.value;
    part.rounds.back().first = message.from;
  }
  Round& round = part.rounds[ahead];
  ++part.received[worker];
  const bool in_rank_order = setup_.apply == Apply::kMean;
  round.early[in_rank_order ? worker : static_cast<std::size_t>(round.added)] = std::move(payload);
  for (; round.added < workers_; ++round.added) {
    ServerPayload& next = round.early[static_cast<std::size_t>(round.added)];
    if (!next.present()) return;
    if (round.added == 0) {
      round.sum = std::move(next);
    } else {
      vec::add(round.sum.floats(), next.floats());
    }
    next = {};
  }
  // A worker's pushes are in order, so no later round can be complete: this is the first.
  const Round done = std::move(part.rounds.front());
  part.rounds.pop_front();
  for (auto& applied : part.applied) ++applied;
  apply(part, done.sum.floats(), done.lr);
}

void ShardServer::apply(Part& part, std::span<const float> gradient, double lr) {
  const float share = 1.0F / static_cast<float>(workers_);
  if (setup_.scores && !part.weights.empty()) {
    const double product = static_cast<double>(share) * vec::sum_abs_products(part.weights, gradient) /
                           static_cast<double>(part.weights.size());
    part.score = part.updates == 0 ? product : kKeptScore * part.score + (1 - kKeptScore) * product;
  }
  part.optimizer->set_lr(lr);
  part.optimizer->step(part.weights, gradient, share);
  ++part.updates;
  part.snapshot.reset();
  answer_waiting(part);
}

void ShardServer::request(const ServerMessage& message, Tag lane) {
  auto request = std::make_shared<Request>();
  request->asked = message;
  request->lane = lane;
  queues_[2 * static_cast<std::size_t>(message.from) + lane].push_back(request);
  if (message.kind != Kind::kPull && message.kind != Kind::kPushPull) {
    idle_requests_.push_back(std::move(request));
    return;
  }
  Part& part = part_of(message);
  request->own = part.received[static_cast<std::size_t>(message.from)] + (message.kind == Kind::kPushPull ? 1 : 0);
  part.waiting.push_back(std::move(request));
  if (message.kind == Kind::kPull) answer_waiting(part);
}

void ShardServer::answer_waiting(Part& part) {
  const std::int64_t all = slowest(part);
  std::erase_if(part.waiting, [&](const std::shared_ptr<Request>& request) {
    const ServerMessage& asked = request->asked;
    if (part.applied[static_cast<std::size_t>(asked.from)] < request->own || all < asked.after) return false;
    if (!part.snapshot) {
      auto copy = std::make_shared<ServerPayload>(std::span(part.weights).size_bytes());
      vec::copy(copy->floats(), part.weights);
      part.snapshot = std::move(copy);
    }
    request->answer = {
        Kind::kReply, 0, asked.part, part.updates, asked.after, part.score, part.snapshot->bytes().size()};
    request->payload = part.snapshot;
    request->ready = true;
    return true;
  });
  if (part.waiting.empty()) part.snapshot.reset();
}

// Answers those who asked about the server as a whole.
void ShardServer::answer_idle() {
  std::erase_if(idle_requests_, [this](const std::shared_ptr<Request>& request) {
    const ServerMessage& asked = request->asked;
    if (asked.kind != Kind::kSetup && slowest() < asked.after) return false;
    if (asked.kind == Kind::kReadState) request->payload = read_state();
    request->answer = {
        Kind::kReply, 0, asked.part, 0, asked.after, 0.0, request->payload ? request->payload->bytes().size() : 0};
    request->ready = true;
    return true;
  });
}

template <typename Visitor>
void ShardServer::visit(Visitor& v) {
  for (Part& part : parts_) {
    v.floats("weights", part.weights);
    part.optimizer->visit(v);
    v.integer("updates", part.updates);
    for (auto& applied : part.applied) v.integer("applied", applied);
    auto score = std::bit_cast<std::int64_t>(part.score);
    v.integer("score", score);
    part.score = std::bit_cast<double>(score);
  }
}

std::shared_ptr<const ServerPayload> ShardServer::read_state() {
  StateWriter writer;
  visit(writer);
  auto payload = std::make_shared<ServerPayload>(writer.bytes.size());
  if (!writer.bytes.empty()) std::memcpy(payload->bytes().data(), writer.bytes.data(), writer.bytes.size());
  return payload;
}

void ShardServer::write_state(const ServerPayload& payload) {
  StateReader reader(payload.bytes());
  visit(reader);
  check(reader.left.empty(), "a server's saved state is too long");
  for (Part& part : parts_) {
    part.received = part.applied;
    part.snapshot.reset();
  }
}

std::int64_t ShardServer::slowest(const Part& part) const {
  return *std::min_element(part.applied.begin(), part.applied.end());
}

std::int64_t ShardServer::slowest() const {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Part& part : parts_) least = std::min(least, slowest(part));
  return least;
}

ShardServer::Part& ShardServer::part_of(const ServerMessage& message) {
  require(message.part < parts_.size(), message, fmt::format("the server has {} parts", parts_.size()));
  return parts_[message.part];
}

void ShardServer::refuse(const ServerMessage& message, const std::string& why) const {
  static constexpr const char* kNames[] = {"",     "setup",      "weights",     "push", "pull", "push and pull",
                                           "wait", "state read", "state write", "bye",  "reply"};
  fail<FabricError>("server {} refuses a {} (part {}, round {}) of rank {}: {}", server_,
                    kNames[static_cast<std::size_t>(message.kind)], message.part, message.round, message.from, why);
}

}  // namespace slipstream
