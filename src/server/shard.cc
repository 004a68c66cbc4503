// SPDX-License-Identifier: Apache-2.0
#include "server/shard.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/vec.h"
#include "base/visit_real.h"
#include "server/layout.h"

namespace slipstream {
namespace {

using Kind = ServerMessage::Kind;
using Apply = ServerSetup::Apply;

constexpr std::uint64_t kUnknownBytes = 64 << 20;  // largest payload accepted before part sizes are known
constexpr double kKeptScore = 0.9;                 // share of the old importance that an update keeps

// Copies a server's state to or from one piece of memory (layout.h) while its parts are visited in order.
class OnePiece final : public StateVisitor {
 public:
  enum class Way { kIn, kOut };
  OnePiece(Way way, const ServerLayout& layout, std::size_t range, std::span<float> all)
      : way_(way), layout_(layout), range_(range), all_(all), done_(layout.fields.size()) {
    integers_at_ = layout.fields.size() * range;
  }
  void floats(std::string_view name, std::span<float> values) override {
    const auto found = std::find(layout_.fields.begin(), layout_.fields.end(), name);
    check(found != layout_.fields.end(), "a server's state has no field '{}'", name);
    const auto field = static_cast<std::size_t>(found - layout_.fields.begin());
    const auto place = all_.subspan(field * range_ + done_[field], values.size());
    done_[field] += values.size();
    way_ == Way::kIn ? vec::copy(values, place) : vec::copy(place, values);
  }
  void integer(std::string_view, std::int64_t& value) override {
    const auto place = std::as_writable_bytes(all_.subspan(integers_at_, ServerLayout::kFloatsOfInteger));
    integers_at_ += ServerLayout::kFloatsOfInteger;
    way_ == Way::kIn ? std::memcpy(&value, place.data(), place.size())
                     : std::memcpy(place.data(), &value, place.size());
  }

 private:
  const Way way_;
  const ServerLayout& layout_;
  const std::size_t range_;
  const std::span<float> all_;
  std::vector<std::size_t> done_;  // floats, by field
  std::size_t integers_at_;
};

}  // namespace

ShardServer::ShardServer(int server, int workers)
    : server_(server),
      workers_(workers),
      set_up_(static_cast<std::size_t>(workers)),
      queues_(2 * static_cast<std::size_t>(workers)) {}

void ShardServer::admit(const ServerMessage& message, std::uint64_t payload_bytes) const {
  require(message.from >= 0 && message.from < workers_, message, "it is not from a worker of this job");
  require(message.payload_bytes == payload_bytes, message,
          fmt::format("it announces {} bytes and has {}", message.payload_bytes, payload_bytes));
  const auto carries = [&](std::uint64_t bytes) {
    require(payload_bytes == bytes, message,
            fmt::format("its payload has {} bytes, the part {}", payload_bytes, bytes));
  };
  switch (message.kind) {
    case Kind::kWeights:
    case Kind::kPush:
    case Kind::kPushPull:
      if (setups_ > 0) {
        carries(std::span(*part_of(message).weights).size_bytes());
      } else {  // with several connections it may overtake the setup
        require(payload_bytes <= kUnknownBytes, message, "nobody has introduced itself, and its payload is large");
      }
      break;
    case Kind::kSetup:
      require(payload_bytes <= kUnknownBytes, message, "its payload is too large");
      break;
    case Kind::kWriteState:
      require(ready(), message, "not all workers have introduced themselves");
      break;
    case Kind::kPull:
      if (setups_ > 0) part_of(message);
      carries(0);
      break;
    case Kind::kAwait:
    case Kind::kStateSize:
    case Kind::kReadState:
    case Kind::kBye:
      carries(0);
      break;
    case Kind::kReply:
      refuse(message, "servers do not take replies");
  }
}

std::vector<ShardServer::Reply> ShardServer::handle(Tag lane, const ServerMessage& message,
                                                    std::span<const std::byte> payload) {
  const std::span<const float> floats(reinterpret_cast<const float*>(payload.data()), payload.size() / sizeof(float));
  require(lane == kUrgent || lane == kBackground, message, "there is no such lane");
  require(message.kind <= Kind::kWeights || ready(), message, "not all workers have introduced themselves");
  admit(message, payload.size());
  switch (message.kind) {
    case Kind::kSetup:
      begin(message, payload);
      request(message, lane);
      break;
    case Kind::kWeights:
      set_weights(message, floats);
      break;
    case Kind::kPush:
    case Kind::kPushPull: {
      Part& part = part_of(message);
      check_push(part, message);
      // Noted before the push is applied, so that the reply has the weights right after it.
      if (message.kind == Kind::kPushPull) request(message, lane);
      push(part, message, floats);
      break;
    }
    case Kind::kWriteState:
      require(slowest_ == message.after, message, "the server is not idle");
      write_state(payload);
      request(message, lane);
      break;
    case Kind::kPull:
    case Kind::kAwait:
    case Kind::kStateSize:
    case Kind::kReadState:
      request(message, lane);
      break;
    case Kind::kBye:
    case Kind::kReply:
      break;
  }
  if (ready()) answer_idle();

  std::vector<Reply> replies;
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    for (auto& queue = queues_[q]; !queue.empty() && queue.front()->ready; queue.pop_front()) {
      replies.push_back({static_cast<int>(q / 2), q % 2 == 0 ? kUrgent : kBackground, queue.front()->answer,
                         std::move(queue.front()->payload)});
    }
  }
  return replies;
}

void ShardServer::begin(const ServerMessage& message, std::span<const std::byte> payload) {
  const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
  require(!set_up_[static_cast<std::size_t>(message.from)], message, "it has introduced itself already");
  if (setups_ == 0) {
    setup_ = ServerSetup::from_text(text);
    setup_text_ = text;
    const auto workers = static_cast<std::size_t>(workers_);
    for (std::size_t offset = 0; const std::size_t count : setup_.counts) {
      Part part;
      part.weights = std::make_shared<Floats>(count);
      part.optimizer = make_optimizer(setup_.optimizer, count, OptimizerUse::kSteps, setup_.groups.part(offset, count));
      offset += count;
      part.received.resize(workers);
      part.applied.resize(workers);
      part.turns.resize(workers);
      parts_.push_back(std::move(part));
    }
    recount();
  }
  require(text == setup_text_, message, "its model, strategy or optimizer differs from the other workers'");
  set_up_[static_cast<std::size_t>(message.from)] = true;
  ++setups_;
}

void ShardServer::set_weights(const ServerMessage& message, std::span<const float> payload) {
  require(setups_ > 0, message, "nobody has introduced itself");
  require(message.from == 0, message, "the first weights are worker 0's to tell");
  require(message.part == weighed_, message, "it is out of order");
  vec::copy(*part_of(message).weights, payload);
  ++weighed_;
}

void ShardServer::check_push(const Part& part, const ServerMessage& message) const {
  const auto worker = static_cast<std::size_t>(message.from);
  require(message.round == part.received[worker], message,
          fmt::format("it is out of order: round {} comes next", part.received[worker]));
  if (setup_.apply == Apply::kArrival || setup_.apply == Apply::kTurns) return;
  const auto ahead = static_cast<std::size_t>(message.round - part.updates);
  if (ahead >= part.rounds.size()) return;
  const Round& round = part.rounds[ahead];
  require(round.lr == message.value, message,
          fmt::format("its learning rate is {}, that of rank {} is {}", message.value, round.first, round.lr));
}

Floats ShardServer::copy_of(std::span<const float> values) {
  Floats copy;
  if (!buffers_.empty()) {
    copy = std::move(buffers_.back());
    buffers_.pop_back();
  }
  copy.assign(values.begin(), values.end());
  return copy;
}

void ShardServer::push(Part& part, const ServerMessage& message, std::span<const float> payload) {
  const auto worker = static_cast<std::size_t>(message.from);
  switch (setup_.apply) {
    case Apply::kMean:
    case Apply::kMeanByArrival:
      add_to_round(part, message, payload);
      break;
    case Apply::kArrival:
      ++part.received[worker];
      ++part.applied[worker];
      apply(part, payload, message.value);
      break;
    case Apply::kTurns:
      ++part.received[worker];
      part.turns[worker].emplace_back(copy_of(payload), message.value);
      for (;;) {
        const auto next = static_cast<std::size_t>(part.updates % workers_);
        auto& line = part.turns[next];
        if (line.empty()) break;
        auto [gradient, lr] = std::move(line.front());
        line.pop_front();
        ++part.applied[next];
        apply(part, gradient, lr);
        buffers_.push_back(std::move(gradient));
      }
      break;
  }
}

void ShardServer::add_to_round(Part& part, const ServerMessage& message, std::span<const float> payload) {
  const auto worker = static_cast<std::size_t>(message.from);
  const auto ahead = static_cast<std::size_t>(message.round - part.updates);
  while (part.rounds.size() <= ahead) {
    Round& fresh = part.rounds.emplace_back();
    fresh.early.resize(static_cast<std::size_t>(workers_));
    fresh.came.resize(static_cast<std::size_t>(workers_));
    fresh.lr = message.value;
    fresh.first = message.from;
  }
  Round& round = part.rounds[ahead];
  ++part.received[worker];
  const auto add = [&](std::span<const float> gradient) {
    if (round.added == 0) {
      round.sum = copy_of(gradient);
    } else {
      vec::add(round.sum, gradient);
    }
    ++round.added;
  };
  const bool in_rank_order = setup_.apply == Apply::kMean;
  if (in_rank_order && static_cast<int>(worker) != round.added) {
    round.early[worker] = copy_of(payload);
    round.came[worker] = true;
    return;
  }
  add(payload);
  while (round.added < workers_ && round.came[static_cast<std::size_t>(round.added)]) {
    Floats early = std::move(round.early[static_cast<std::size_t>(round.added)]);
    add(early);
    buffers_.push_back(std::move(early));
  }
  if (round.added < workers_) return;
  // A worker's pushes come in order, so no later round can be complete before this one: it is the first.
  Round done = std::move(part.rounds.front());
  part.rounds.pop_front();
  for (auto& applied : part.applied) ++applied;
  apply(part, done.sum, done.lr);
  buffers_.push_back(std::move(done.sum));
}

void ShardServer::apply(Part& part, std::span<const float> gradient, double lr) {
  if (part.weights.use_count() > 1) {  // a reply with these weights has not left yet
    if (!part.spare || part.spare.use_count() > 1) part.spare = std::make_shared<Floats>(part.weights->size());
    vec::copy(*part.spare, *part.weights);
    part.weights.swap(part.spare);
  }
  Floats& weights = *part.weights;
  // A round's sum is applied as its mean. A single push is applied in full, but with a P-th of the rate: so P pushes
  // decay the weights, and under Adam move them, as far as one round does.
  const bool is_sum = setup_.apply == Apply::kMean || setup_.apply == Apply::kMeanByArrival;
  const float share = is_sum ? 1.0F / static_cast<float>(workers_) : 1.0F;
  if (setup_.scores && !weights.empty()) {
    const double product =
        static_cast<double>(share) * vec::sum_abs_products(weights, gradient) / static_cast<double>(weights.size());
    part.score = part.updates == 0 ? product : kKeptScore * part.score + (1 - kKeptScore) * product;
  }
  part.optimizer->set_lr(is_sum ? lr : lr / workers_);
  part.optimizer->step(weights, gradient, share);
  ++part.updates;
  count_applied(part);
  answer_waiting(part);
}

void ShardServer::count_applied(Part& part) {
  const std::int64_t before = part.slowest;
  part.slowest = *std::min_element(part.applied.begin(), part.applied.end());
  if (part.slowest == before || before != slowest_) return;
  if (--behind_ == 0) recount();
}

void ShardServer::recount() {
  slowest_ = parts_.empty() ? std::numeric_limits<std::int64_t>::max() : parts_.front().slowest;
  for (const Part& part : parts_) slowest_ = std::min(slowest_, part.slowest);
  behind_ = static_cast<std::size_t>(
      std::count_if(parts_.begin(), parts_.end(), [this](const Part& part) { return part.slowest == slowest_; }));
}

void ShardServer::request(const ServerMessage& message, Tag lane) {
  auto request = std::make_shared<Request>();
  request->asked = message;
  request->lane = lane;
  queues_[2 * static_cast<std::size_t>(message.from) + static_cast<std::size_t>(lane_of(lane))].push_back(request);
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
  std::erase_if(part.waiting, [&](const std::shared_ptr<Request>& request) {
    const ServerMessage& asked = request->asked;
    if (part.applied[static_cast<std::size_t>(asked.from)] < request->own || part.slowest < asked.after) return false;
    request->answer = {
        Kind::kReply, 0, asked.part, part.updates, asked.after, part.score, std::span(*part.weights).size_bytes()};
    request->payload = part.weights;
    request->ready = true;
    return true;
  });
}

// Answers requests that are about the server as a whole.
void ShardServer::answer_idle() {
  std::erase_if(idle_requests_, [this](const std::shared_ptr<Request>& request) {
    const ServerMessage& asked = request->asked;
    if (asked.kind != Kind::kSetup && slowest_ < asked.after) return false;
    std::int64_t size = 0;
    if (asked.kind == Kind::kReadState || asked.kind == Kind::kStateSize) {
      auto state = read_state();
      size = static_cast<std::int64_t>(std::span(*state).size_bytes());
      if (asked.kind == Kind::kReadState) request->payload = std::move(state);
    }
    const std::uint64_t bytes = request->payload ? std::span(*request->payload).size_bytes() : 0;
    request->answer = {Kind::kReply, 0, asked.part, size, asked.after, 0.0, bytes};
    request->ready = true;
    return true;
  });
}

void ShardServer::visit(StateVisitor& v) {
  for (Part& part : parts_) {
    v.floats("weights", *part.weights);
    part.optimizer->visit(v);
    v.integer("updates", part.updates);
    for (auto& applied : part.applied) v.integer("applied", applied);
    visit_real(v, "score", part.score);
  }
}

std::size_t ShardServer::state_floats(const ServerLayout& layout, std::size_t range) const {
  constexpr std::size_t kOwn = 2;  // updates and score
  const std::size_t integers = parts_.size() * (layout.integers.size() + static_cast<std::size_t>(workers_) + kOwn);
  return layout.fields.size() * range + integers * ServerLayout::kFloatsOfInteger;
}

std::shared_ptr<const Floats> ShardServer::read_state() {
  const ServerLayout layout(setup_.optimizer);
  const std::size_t range = std::accumulate(setup_.counts.begin(), setup_.counts.end(), std::size_t{0});
  auto state = std::make_shared<Floats>(state_floats(layout, range));
  OnePiece out(OnePiece::Way::kOut, layout, range, *state);
  visit(out);
  return state;
}

void ShardServer::write_state(std::span<const std::byte> payload) {
  const ServerLayout layout(setup_.optimizer);
  const std::size_t range = std::accumulate(setup_.counts.begin(), setup_.counts.end(), std::size_t{0});
  Floats state(payload.size() / sizeof(float));
  check(state.size() == state_floats(layout, range), "a server's saved state has {} floats, not {}", state.size(),
        state_floats(layout, range));
  if (!state.empty()) std::memcpy(state.data(), payload.data(), payload.size());
  for (Part& part : parts_) {  // replies that have not left keep the old weights
    if (part.weights.use_count() > 1) part.weights = std::make_shared<Floats>(*part.weights);
  }
  OnePiece in(OnePiece::Way::kIn, layout, range, state);
  visit(in);
  for (Part& part : parts_) {
    part.received = part.applied;
    part.slowest = *std::min_element(part.applied.begin(), part.applied.end());
  }
  recount();
}

const ShardServer::Part& ShardServer::part_of(const ServerMessage& message) const {
  require(message.part < parts_.size(), message, fmt::format("the server has {} parts", parts_.size()));
  return parts_[message.part];
}

void ShardServer::refuse(const ServerMessage& message, const std::string& why) const {
  static constexpr const char* kNames[] = {"",     "setup",      "weights",    "push",        "pull", "push and pull",
                                           "wait", "state size", "state read", "state write", "bye",  "reply"};
  fail<FabricError>("server {} refuses a {} (part {}, round {}) of rank {}: {}", server_,
                    kNames[static_cast<std::size_t>(message.kind)], message.part, message.round, message.from, why);
}

}  // namespace slipstream
