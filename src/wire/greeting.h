// SPDX-License-Identifier: Apache-2.0
//
// Greeting: how two members of a job find out, at the start of a connection, that both know the job's secret and that
// each has reached the process it wanted to reach. A state machine: bytes in, bytes out; no sockets, no clock, no
// threads. It reads not one byte beyond the greeting. It runs inside TLS as well.
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
// both sides make a recorded conversation worthless, and since the proofs cover every byte of both hellos, nobody in
// between can change one. Epoch and rank are compared only after the proof. A peer with another magic gets no answer at
// all; one with another version gets our hello, in which it sees our version.
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

// Who the connecting side says it is, whom it wants to reach, and which of its parallel connections this is.
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

  // For kAccepts, `mine` has our epoch, and our rank in `from`; the rest of it is ignored.
  Greeting(Side side, const Key& key, const Introduction& mine);

  // Memory for the next bytes from the peer; empty if none are expected.
  std::span<std::byte> wants();
  // `bytes` bytes were read into wants(). Throws FabricError when the peer is refused or refuses us.
  void take(std::size_t bytes);

  // Bytes to send now. After take() threw, they are the refusal: send as much of it as the socket takes, then close.
  std::span<const std::byte> says() const;
  void said(std::size_t bytes);

  // Authenticated both ways, and nothing is left to send.
  bool done() const;
  // Valid when done. On the connecting side: epoch and rank (`from`) of the accepting side; the rest as we sent it.
  const Introduction& theirs() const;

 private:
  enum class Awaits { kHello, kProof, kVerdict, kNothing, kRefused };

  void check_beginning();  // magic and version, as far as they have come
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
  std::vector<std::byte> input_;  // as large as the message that is expected
  std::size_t taken_ = 0;         // bytes of it that have come
  std::vector<std::byte> output_;
  std::size_t said_ = 0;
};

}  // namespace slipstream
