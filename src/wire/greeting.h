// SPDX-License-Identifier: Apache-2.0
//
// Greeting: how two members of a job find out, at the start of a connection, that both know the job's secret and that
// each has reached whom it wanted to reach. A state machine: bytes in, bytes out; no sockets, no clock, no threads. It
// reads not one byte beyond the greeting. Runs inside TLS as well.
//
// Four messages of fixed size; numbers are little-endian, bytes that are not named are zero:
//
//   hello of the connecting side, 56 bytes                hello of the accepting side, 48 bytes
//    0 |73 6c 70 73| magic "slps"                          0 |73 6c 70 73| magic "slps"
//    4 |vv vv| version                                     4 |vv vv| version
//    6 |00 00|                                             6 |00 00|
//    8 |ss ss| stream   10 |nn nn| streams                 8 |ee ee ee ee| epoch
//   12 |ee ee ee ee| epoch                                12 |rr rr rr rr| rank
//   16 |ff ff ff ff| from: its rank                       16 nonce, 32 random bytes
//   20 |tt tt tt tt| to: the rank it wants
//   24 nonce, 32 random bytes
//
//   proof of the connecting side, 32 bytes                verdict of the accepting side, 36 bytes
//    0 HMAC(key, "greeting connects" | 0 | both hellos)    0 |cc cc cc cc| 0: welcome, else why not (Verdict)
//                                                          4 HMAC(key, "greeting accepts" | 0 | both hellos | proof),
//                                                            zeros where refused
//
// The accepting side verifies first, so a stranger gets nothing from it that was made with the key. Fresh nonces from
// both sides make a recorded conversation worthless, and as the proofs cover every byte of both hellos, nobody on the
// way can change one. Only after the proof are epoch and rank compared. A peer with another magic gets no answer at
// all; one with another version gets our hello, in which it sees the version.
//
// What follows the greeting is not protected by it: that is TLS's task.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wire/channel.h"
#include "wire/secret.h"

namespace slipstream {

// Who the connecting side says it is, and whom it wants to reach, with which of its parallel connections.
struct Introduction {
  std::uint32_t epoch = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::uint16_t stream = 0;  // below `streams`
  std::uint16_t streams = 1;

  bool operator==(const Introduction&) const = default;
};

class Greeting {
 public:
  enum class Verdict : std::uint32_t { kWelcome, kBadSecret, kOtherEpoch, kOtherRank, kOtherVersion, kBadStream };

  // For kAccepts, `mine` has the own epoch, and the own rank in `from`; the rest of it is ignored.
  Greeting(Side side, const Key& key, const Introduction& mine);

  // Memory for the next bytes of the peer; empty when none are awaited.
  std::span<std::byte> wants();
  // So many were read into wants(). Throws FabricError when the peer is refused or refuses us.
  void take(std::size_t bytes);

  // Bytes to be sent now. After take() threw, the refusal: send what the socket takes of it, then close.
  std::span<const std::byte> says() const;
  void said(std::size_t bytes);

  // Authenticated both ways, and nothing is left to be said.
  bool done() const;
  // Valid when done. On the connecting side: epoch and rank (`from`) of the accepting one; the rest as we sent it.
  const Introduction& theirs() const;

 private:
  enum class Awaits { kHello, kProof, kVerdict, kNothing, kRefused };

  void check_beginning();  // magic and version, as far as they are there
  void take_hello();
  void take_proof();
  void take_verdict();
  void await(Awaits next);
  [[noreturn]] void refuse(const std::string& why);
  void say(std::span<const std::byte> bytes);
  void say_verdict(Verdict verdict);
  std::vector<std::byte> hellos() const;  // both, the connecting side's first
  Key accepts_proof() const;

  Side side_;
  Key key_;
  Introduction mine_;
  Introduction theirs_;
  Awaits awaits_ = Awaits::kHello;
  std::vector<std::byte> own_hello_;
  std::vector<std::byte> peer_hello_;
  Key proof_{};                   // the connecting side's
  std::vector<std::byte> input_;  // of the size of the message that is awaited
  std::size_t taken_ = 0;         // bytes of it that are there
  std::vector<std::byte> output_;
  std::size_t said_ = 0;
};

}  // namespace slipstream
