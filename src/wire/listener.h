// SPDX-License-Identifier: Apache-2.0
//
// Listener: takes messages from any peer as they come, without posted receives. A parameter server is one. Its messages
// begin with a head of 48 bytes, which it sees before memory is allocated for the rest.
//
// All calls come from one thread (the mesh's I/O thread), in order for each sender and tag.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "wire/transfer.h"

namespace slipstream {

constexpr std::size_t kLetterHeadBytes = 48;
using LetterHead = std::array<std::byte, kLetterHeadBytes>;
using Floats = std::vector<float>;

// How a listener answers, from within arrived(). The answer is sent in the background; until then it shares `body`.
class Answers {
 public:
  virtual ~Answers() = default;
  virtual void send(int to, Tag tag, const LetterHead& head, std::shared_ptr<const Floats> body) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  // A message begins. Throws FabricError to refuse it: that ends the job.
  virtual void begins(int from, Tag tag, const LetterHead& head, std::uint64_t body_bytes) = 0;
  // The job cannot go on: no further calls come.
  virtual void failed(const std::string& text) = 0;
  // The message is complete. `body` is valid during the call.
  virtual void arrived(int from, Tag tag, const LetterHead& head, std::span<const std::byte> body,
                       Answers& answers) = 0;
  // Asked after each letter: was it the last one of this sender and tag? Later ones wait for the next listener.
  virtual bool finished(int /*from*/, Tag /*tag*/) const { return false; }
};

}  // namespace slipstream
