// SPDX-License-Identifier: Apache-2.0
//
// Channel: a byte stream over one connected, non-blocking TCP socket, plain or encrypted (TLS 1.3, pre-shared key). No
// call ever waits: each moves what it can and says what to do next. The socket belongs to the caller, who keeps it open
// for as long as the channel lives and closes it afterwards. One channel is used by one thread at a time.
//
// Rules for the caller:
// - Where `then` is not kMore, no bytes were moved. So after bytes have moved the caller calls again, and waits for the
//   socket only when told to: TLS may hold bytes that the socket no longer shows as readable.
// - What write() was offered and did not take must be offered first and unchanged to the next write() (more may follow
//   it): a part of it may be encrypted already. TLS checks this and throws Error.
// - After an exception the channel must not be used any more.
//
// Failures are FabricError in plain words, without the peer's name, which the caller knows. Plain channels protect
// nothing; neither kind says who the peer is (wire/greeting.h does).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "wire/secret.h"

namespace slipstream {

struct Moved {
  std::size_t bytes = 0;
  enum class Then {
    kMore,        // call again
    kAwaitRead,   // would block until the socket is readable
    kAwaitWrite,  // would block until the socket is writable
    kClosed,      // the peer has closed (read only)
  } then = Then::kMore;
};

class Channel {
 public:
  virtual ~Channel() = default;

  // The TLS handshake; done when `then` is kMore, at once on a plain channel. Call it before read and write.
  virtual Moved open() = 0;
  virtual Moved read(std::span<std::byte> into) = 0;
  // Writes the beginning of the pieces, one after the other, as far as it fits; `bytes` counts over all pieces.
  virtual Moved write(std::span<const std::span<const std::byte>> pieces) = 0;
};

std::unique_ptr<Channel> plain_channel(int fd);

enum class Side { kConnects, kAccepts };

// Makes encrypted channels for the members of one job. Both sides prove that they have the key: there are no
// certificates. Every connection has its own keys, which are renewed; whoever learns the secret later cannot read a
// recording. May be shared between threads; channels may outlive it.
class TlsContext {
 public:
  // AES-GCM stays far from its limit (2^24.5 records, RFC 8446 section 5.5) if a sender changes its key this often;
  // tests do it more often.
  static constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 23;

  explicit TlsContext(const Key& key, std::uint64_t records_per_key = kRecordsPerKey);

  std::unique_ptr<Channel> channel(int fd, Side side) const;

  struct State;  // OpenSSL's; in tls_channel.cc

 private:
  std::shared_ptr<const State> state_;
};

// What an errno means for a connection: "connection reset by peer".
std::string connection_error(int error);

}  // namespace slipstream
