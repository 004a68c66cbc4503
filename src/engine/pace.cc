// SPDX-License-Identifier: Apache-2.0
#include "engine/pace.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "wire/roster.h"

namespace slipstream {
namespace {

// Each tag has one kind of sender, since messages are numbered by tag: training threads ask and tell, I/O threads
// answer.
constexpr Tag kAskTag = 0x40000020, kAnswerTag = 0x40000021, kTellTag = 0x40000022;

}  // namespace

LetterHead Pace::Letter::pack() const {
  LetterHead head{};
  std::memcpy(head.data(), this, sizeof *this);
  return head;
}

Pace::Letter Pace::Letter::unpack(const LetterHead& head) {
  Letter letter;
  std::memcpy(&letter, head.data(), sizeof letter);
  return letter;
}

Pace::Pace(Fabric& net)
    : net_(net), heard_(static_cast<std::size_t>(net.size())), asked_(static_cast<std::size_t>(net.size())) {
  // Rounds are numbered from rank 0's time in ns on: above those of any earlier session on the same fabric.
  const auto now = static_cast<std::int64_t>(net.clock().now() * 1e9);
  std::vector<std::int64_t> all(heard_.size());
  net.gather(std::as_bytes(std::span(&now, 1)), std::as_writable_bytes(std::span(all))).wait();
  round_ = all[0];
  net.listen(kAskTag, this);
}

Pace::~Pace() { net_.listen(kAskTag, nullptr); }

void Pace::begins(std::int64_t t) {
  if (latest_ == t) return;
  std::vector<int> curious;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;  // a step of other ranks
    begun_ = latest_ = t;
    for (int r = 0; r < net_.size(); ++r) {
      const Asked& asked = asked_[static_cast<std::size_t>(r)];
      if (asked.round == round_ && t >= asked.at) curious.push_back(r);
    }
  }
  for (const int r : curious) send(r, kTellTag, {.round = round_, .step = t});
}

bool Pace::someone_goes_on(std::int64_t t) {
  const auto goes_on = [t](const Heard& heard) { return heard.begun >= t; };
  end(t);
  for (int r = 0; r < net_.size(); ++r) {
    if (std::any_of(heard_.begin(), heard_.end(), goes_on)) return true;
    if (r == net_.rank()) continue;
    // A rank that has not begun step t will begin or end without us, because we took part in all steps before.
    const Heard& heard = heard_[static_cast<std::size_t>(r)];
    while (!heard.ended && !goes_on(heard)) hear(r);
  }
  if (std::any_of(heard_.begin(), heard_.end(), goes_on)) return true;
  begin_round();
  return false;
}

// Tells everybody, once in a round, that this rank has ended.
void Pace::end(std::int64_t t) {
  std::vector<int> curious;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
    for (int r = 0; r < net_.size(); ++r) {
      if (asked_[static_cast<std::size_t>(r)].round == round_) curious.push_back(r);
    }
  }
  for (const int r : curious) send(r, kTellTag, {.round = round_, .step = latest_, .ended = 1});
  for (int r = 0; r < net_.size(); ++r) {
    if (r != net_.rank()) send(r, kAskTag, {.round = round_, .step = t});
  }
}

// All peers have ended. Begins the next round once all of them were answered, since then nobody needs us any more.
void Pace::begin_round() {
  heard_.assign(heard_.size(), {});
  std::unique_lock lock(mutex_);
  const auto answered = [this] {
    int peers = 0;
    for (const Asked& asked : asked_) peers += asked.round >= round_ ? 1 : 0;
    return peers == net_.size() - 1;
  };
  changed_.wait(lock, [&] { return answered() || failure_; });
  if (!answered()) throw_failure_text(*failure_, true);
  ++round_;
  ended_ = false;
}

// Receives the next letter of a peer.
void Pace::hear(int peer) {
  Heard& heard = heard_[static_cast<std::size_t>(peer)];
  LetterHead head;
  net_.recv(peer, heard.answered ? kTellTag : kAnswerTag, head).wait();
  const Letter letter = Letter::unpack(head);
  if (letter.round != round_) return;  // from an abandoned session
  heard.answered = true;
  heard.ended = letter.ended != 0;
  heard.begun = letter.step;
}

void Pace::send(int to, Tag tag, const Letter& letter) {
  while (!sent_.empty() && sent_.front().leaving.done()) sent_.pop_front();
  Sent& sent = sent_.emplace_back(Sent{letter.pack(), {}});
  sent.leaving = net_.send(to, tag, sent.head);
}

void Pace::begins(int from, Tag, const LetterHead&, std::uint64_t body_bytes) {
  if (body_bytes != 0) fail<FabricError>("a letter of rank {} about its end is refused: it has a body", from);
}

void Pace::arrived(int from, Tag, const LetterHead& head, std::span<const std::byte>, Answers& answers) {
  const Letter letter = Letter::unpack(head);
  Letter answer{.round = letter.round};
  {
    const std::lock_guard lock(mutex_);
    if (letter.round < round_ || from >= net_.size()) return;  // from an abandoned session, or a server
    asked_[static_cast<std::size_t>(from)] = {letter.round, letter.step};
    answer.step = begun_;
    // A rank that is one round ahead asks about that round, in which we have not ended yet.
    answer.ended = ended_ && letter.round == round_ ? 1 : 0;
    changed_.notify_all();
  }
  answers.send(from, kAnswerTag, answer.pack(), nullptr);
}

void Pace::failed(const std::string& text) {
  const std::lock_guard lock(mutex_);
  failure_ = text;
  changed_.notify_all();
}

}  // namespace slipstream
