// SPDX-License-Identifier: Apache-2.0
#include "wire/greeting.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <concepts>

namespace slipstream {
namespace {

constexpr std::array kMagic = {std::byte{'s'}, std::byte{'l'}, std::byte{'p'}, std::byte{'s'}};
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kVersionAt = 4;
constexpr std::size_t kNonceBytes = sizeof(Key);
constexpr std::size_t kConnectsBytes = 24 + kNonceBytes;
constexpr std::size_t kAcceptsBytes = 16 + kNonceBytes;
constexpr std::size_t kProofBytes = sizeof(Key);
constexpr std::size_t kVerdictBytes = 4 + kProofBytes;
constexpr const char* kConnectsProof = "greeting connects";
constexpr const char* kAcceptsProof = "greeting accepts";
constexpr std::byte kTlsHandshake{0x16};  // the first byte of a TLS connection

template <std::unsigned_integral T>
void put(std::span<std::byte> bytes, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

template <std::unsigned_integral T>
T get(std::span<const std::byte> bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<T>(bytes[at + i]) << (8 * i));
  return value;
}

std::vector<std::byte> hello_of(Side side, const Introduction& mine) {
  const bool connects = side == Side::kConnects;
  std::vector<std::byte> hello(connects ? kConnectsBytes : kAcceptsBytes);
  std::copy(kMagic.begin(), kMagic.end(), hello.begin());
  put(hello, kVersionAt, kVersion);
  const Key nonce = random_key();
  std::copy(nonce.begin(), nonce.end(), hello.end() - kNonceBytes);
  if (connects) {
    put(hello, 8, mine.stream);
    put(hello, 10, mine.streams);
    put(hello, 12, mine.epoch);
    put(hello, 16, static_cast<std::uint32_t>(mine.from));
    put(hello, 20, static_cast<std::uint32_t>(mine.to));
  } else {
    put(hello, 8, mine.epoch);
    put(hello, 12, static_cast<std::uint32_t>(mine.from));
  }
  return hello;
}

}  // namespace

Greeting::Greeting(Side side, const Key& key, const Introduction& mine)
    : side_(side), key_(key), mine_(mine), theirs_(mine), own_hello_(hello_of(side, mine)) {
  if (side == Side::kConnects) {
    check(mine.stream < mine.streams, "a greeting for stream {} of {}", mine.stream, mine.streams);
    say(own_hello_);
  }
  await(Awaits::kHello);
}

std::span<std::byte> Greeting::wants() { return std::span(input_).subspan(taken_); }

void Greeting::take(std::size_t bytes) {
  check(bytes <= input_.size() - taken_, "a greeting took {} bytes and wanted {}", bytes, input_.size() - taken_);
  taken_ += bytes;
  if (awaits_ == Awaits::kHello) check_beginning();
  if (taken_ < input_.size()) return;
  switch (awaits_) {
    case Awaits::kHello:
      return take_hello();
    case Awaits::kProof:
      return take_proof();
    case Awaits::kVerdict:
      return take_verdict();
    case Awaits::kNothing:
    case Awaits::kRefused:
      return;
  }
}

std::span<const std::byte> Greeting::says() const { return std::span(output_).subspan(said_); }

void Greeting::said(std::size_t bytes) {
  check(bytes <= says().size(), "a greeting said {} bytes and had {}", bytes, says().size());
  said_ += bytes;
}

bool Greeting::done() const { return awaits_ == Awaits::kNothing && says().empty(); }

const Introduction& Greeting::theirs() const {
  check(done(), "a greeting was asked who the peer is before it was done");
  return theirs_;
}

void Greeting::check_beginning() {
  const auto there = std::span<const std::byte>(input_).first(taken_);
  const std::size_t compared = std::min(there.size(), kMagic.size());
  if (!std::equal(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(compared), kMagic.begin())) {
    refuse(there[0] == kTlsHandshake ? "the peer speaks TLS, this side does not; switch it on at both sides or at none"
                                     : "this is not a slipstream peer; is another program using the port?");
  }
  if (there.size() < kVersionAt + sizeof kVersion) return;
  const auto version = get<std::uint16_t>(there, kVersionAt);
  if (version == kVersion) return;
  if (side_ == Side::kAccepts) {
    say(own_hello_);
    say_verdict(Verdict::kOtherVersion);
  }
  refuse(fmt::format(
      "the peer speaks version {} of the protocol, this side version {}; install the same slipstream on all "
      "machines",
      version, kVersion));
}

void Greeting::take_hello() {
  peer_hello_ = input_;
  if (side_ == Side::kAccepts) {
    theirs_ = {.epoch = get<std::uint32_t>(peer_hello_, 12),
               .from = static_cast<std::int32_t>(get<std::uint32_t>(peer_hello_, 16)),
               .to = static_cast<std::int32_t>(get<std::uint32_t>(peer_hello_, 20)),
               .stream = get<std::uint16_t>(peer_hello_, 8),
               .streams = get<std::uint16_t>(peer_hello_, 10)};
    say(own_hello_);
    return await(Awaits::kProof);
  }
  theirs_.epoch = get<std::uint32_t>(peer_hello_, 8);
  theirs_.from = static_cast<std::int32_t>(get<std::uint32_t>(peer_hello_, 12));
  proof_ = derive(key_, kConnectsProof, hellos());
  say(proof_);  // whatever its epoch and rank: it tells us why it refuses, and learns whom it has refused
  await(Awaits::kVerdict);
}

// The accepting side. Nothing made with the key may leave before the first `same` was true.
void Greeting::take_proof() {
  proof_ = derive(key_, kConnectsProof, hellos());
  if (!same(input_, proof_)) {
    say_verdict(Verdict::kBadSecret);
    refuse("the other side does not have this job's secret");
  }
  if (theirs_.epoch != mine_.epoch) {
    say_verdict(Verdict::kOtherEpoch);
    refuse(fmt::format("epoch {} was offered, this job is in epoch {}", theirs_.epoch, mine_.epoch));
  }
  if (theirs_.to != mine_.from) {
    say_verdict(Verdict::kOtherRank);
    refuse(fmt::format("rank {} wants to reach rank {}, this is rank {}", theirs_.from, theirs_.to, mine_.from));
  }
  if (theirs_.stream >= theirs_.streams) {
    say_verdict(Verdict::kBadStream);
    refuse(fmt::format("rank {} offers stream {} of {}", theirs_.from, theirs_.stream, theirs_.streams));
  }
  say_verdict(Verdict::kWelcome);
  await(Awaits::kNothing);
}

void Greeting::take_verdict() {
  switch (static_cast<Verdict>(get<std::uint32_t>(input_, 0))) {
    case Verdict::kWelcome:
      break;
    case Verdict::kBadSecret:
      refuse("the other side has another secret and refuses this one; give every machine of the job the same one");
    case Verdict::kOtherEpoch:
      refuse(fmt::format("epoch {} was offered, the other side is in epoch {}", mine_.epoch, theirs_.epoch));
    case Verdict::kOtherRank:
      refuse(fmt::format("rank {} was wanted, rank {} answered", mine_.to, theirs_.from));
    case Verdict::kOtherVersion:
      refuse("the other side speaks another version of the protocol; install the same slipstream on all machines");
    case Verdict::kBadStream:
      refuse(fmt::format("the other side refuses stream {} of {}", mine_.stream, mine_.streams));
    default:
      refuse("the other side refuses this connection for a reason that this version does not know");
  }
  if (!same(std::span(input_).subspan(4), accepts_proof())) refuse("the other side does not have this job's secret");
  // A member that knows the secret never welcomes us to another epoch or rank; check it all the same.
  if (theirs_.epoch != mine_.epoch) {
    refuse(fmt::format("epoch {} was offered, the other side is in epoch {}", mine_.epoch, theirs_.epoch));
  }
  if (theirs_.from != mine_.to) refuse(fmt::format("rank {} was wanted, rank {} answered", mine_.to, theirs_.from));
  await(Awaits::kNothing);
}

void Greeting::await(Awaits next) {
  awaits_ = next;
  taken_ = 0;
  switch (next) {
    case Awaits::kHello:
      return input_.resize(side_ == Side::kConnects ? kAcceptsBytes : kConnectsBytes);
    case Awaits::kProof:
      return input_.resize(kProofBytes);
    case Awaits::kVerdict:
      return input_.resize(kVerdictBytes);
    case Awaits::kNothing:
    case Awaits::kRefused:
      return input_.clear();
  }
}

void Greeting::refuse(const std::string& why) {
  await(Awaits::kRefused);
  throw FabricError(why);
}

void Greeting::say(std::span<const std::byte> bytes) { output_.insert(output_.end(), bytes.begin(), bytes.end()); }

void Greeting::say_verdict(Verdict verdict) {
  std::array<std::byte, kVerdictBytes> message{};
  put(message, 0, static_cast<std::uint32_t>(verdict));
  if (verdict == Verdict::kWelcome) {
    const Key proof = accepts_proof();
    std::copy(proof.begin(), proof.end(), message.begin() + 4);
  }
  say(message);
}

std::vector<std::byte> Greeting::hellos() const {
  const bool connects = side_ == Side::kConnects;
  std::vector<std::byte> both = connects ? own_hello_ : peer_hello_;
  const std::vector<std::byte>& second = connects ? peer_hello_ : own_hello_;
  both.insert(both.end(), second.begin(), second.end());
  return both;
}

Key Greeting::accepts_proof() const {
  std::vector<std::byte> all = hellos();
  all.insert(all.end(), proof_.begin(), proof_.end());
  return derive(key_, kAcceptsProof, all);
}

}  // namespace slipstream
