// SPDX-License-Identifier: Apache-2.0
#include "wire/channel.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <slipstream/base/error.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <vector>

#include "base/rng.h"

namespace slipstream {
namespace {

using Bytes = std::vector<std::byte>;
using Then = Moved::Then;

const Key kKey = key_of("the secret of this job");
const Key kOtherKey = key_of("the secret of another job");

// Two connected non-blocking sockets: loopback TCP, or AF_UNIX, where what was sent can be read at once.
struct Sockets {
  explicit Sockets(bool tcp = false, int buffer_bytes = 0) {
    if (tcp) {
      const int listener = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof address;
      auto* any = reinterpret_cast<sockaddr*>(&address);
      EXPECT_EQ(bind(listener, any, size), 0);
      EXPECT_EQ(listen(listener, 1), 0);
      EXPECT_EQ(getsockname(listener, any, &size), 0);
      fd[0] = socket(AF_INET, SOCK_STREAM, 0);
      shrink(fd[0], buffer_bytes);
      shrink(listener, buffer_bytes);
      EXPECT_EQ(connect(fd[0], any, size), 0);
      fd[1] = accept(listener, nullptr, nullptr);
      close(listener);
      const int yes = 1;
      for (const int one : fd) setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    } else {
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
      shrink(fd[0], buffer_bytes);
      shrink(fd[1], buffer_bytes);
    }
    for (const int one : fd) fcntl(one, F_SETFL, fcntl(one, F_GETFL) | O_NONBLOCK);
  }
  ~Sockets() {
    for (const int one : fd) {
      if (one >= 0) close(one);
    }
  }
  static void shrink(int one, int bytes) {
    if (bytes == 0) return;
    setsockopt(one, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(one, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
  void close_one(int which) {
    close(fd[which]);
    fd[which] = -1;
  }

  int fd[2] = {-1, -1};
};

void wait_for(int fd, Then then) {
  if (then == Then::kMore) return;
  pollfd one{fd, static_cast<short>(then == Then::kAwaitRead ? POLLIN : POLLOUT), 0};
  ASSERT_EQ(poll(&one, 1, 60'000), 1) << "nothing happened for a minute";
}

// Opens both ends on one thread. Returns what each said that failed.
std::array<std::string, 2> open_both(Channel& a, Channel& b) {
  std::array<std::string, 2> errors;
  bool open[2] = {false, false};
  Channel* const channels[] = {&a, &b};
  for (int round = 0; round < 1'000'000; ++round) {
    for (const std::size_t i : {0, 1}) {
      if (open[i] || !errors[i].empty()) continue;
      try {
        open[i] = channels[i]->open().then == Then::kMore;
      } catch (const FabricError& error) {
        errors[i] = error.what();
      }
    }
    if ((open[0] || !errors[0].empty()) && (open[1] || !errors[1].empty())) return errors;
  }
  ADD_FAILURE() << "the handshake does not end";
  return errors;
}

template <typename Call>
std::string fabric_error_of(Call call) {
  try {
    for (int i = 0; i < 1'000'000; ++i) call();
  } catch (const FabricError& error) {
    return error.what();
  }
  return "no FabricError";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Bytes random_bytes(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  Rng rng(seed);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next());
  return bytes;
}

Bytes read_all(Channel& channel) {
  Bytes all, part(100'000);
  for (;;) {
    const Moved moved = channel.read(part);
    if (moved.then != Then::kMore) return all;
    all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
  }
}

void write_all(Channel& channel, int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::span<const std::byte> pieces[] = {bytes};
    const Moved moved = channel.write(pieces);
    wait_for(fd, moved.then);
    bytes = bytes.subspan(moved.bytes);
  }
}

struct Kind {
  bool tls;
  bool tcp;
};

class ChannelOf : public testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Channel> make(int fd, Side side) const {
    // A change of keys every few records.
    return GetParam().tls ? TlsContext(kKey, 5).channel(fd, side) : plain_channel(fd);
  }
  void connect(int buffer_bytes = 0) {
    sockets_.emplace(GetParam().tcp, buffer_bytes);
    a_ = make(sockets_->fd[0], Side::kConnects);
    b_ = make(sockets_->fd[1], Side::kAccepts);
    ASSERT_EQ(open_both(*a_, *b_), (std::array<std::string, 2>{}));
  }

  // Smaller ones make TCP itself stall for seconds now and then.
  int smallest_buffer() const { return GetParam().tcp ? 16 * 1024 : 1; }

  std::optional<Sockets> sockets_;
  std::unique_ptr<Channel> a_, b_;
};

INSTANTIATE_TEST_SUITE_P(All, ChannelOf,
                         testing::Values(Kind{false, false}, Kind{false, true}, Kind{true, false}, Kind{true, true}),
                         [](const auto& info) {
                           return std::string(info.param.tls ? "Tls" : "Plain") + (info.param.tcp ? "Tcp" : "Unix");
                         });

// Both directions at once, in pieces of random sizes (also none), through small and large socket buffers.
TEST_P(ChannelOf, WhatIsWrittenInPiecesArrivesEqual) {
  for (const int buffer_bytes : {smallest_buffer(), 50'000, 0}) {
    ASSERT_NO_FATAL_FAILURE(connect(buffer_bytes));
    Rng rng(7);
    struct Direction {
      Channel* from;
      Channel* to;
      Bytes sent, got;
      std::size_t done = 0;
    };
    Direction ways[] = {{a_.get(), b_.get(), random_bytes(700'001, 1), {}},
                        {b_.get(), a_.get(), random_bytes(300'000, 2), {}}};
    const auto some = [&] { return rng.below(4) == 0 ? rng.below(70'000) : rng.below(200); };
    for (int turn = 0; ways[0].got.size() < ways[0].sent.size() || ways[1].got.size() < ways[1].sent.size(); ++turn) {
      ASSERT_LT(turn, 10'000'000);
      for (Direction& way : ways) {
        if (rng.below(2) == 0) {
          // Cut otherwise every time: only the bytes have to be the same again.
          std::vector<std::span<const std::byte>> pieces;
          auto ahead = std::span<const std::byte>(way.sent).subspan(way.done);
          const auto all = std::min<std::size_t>(ahead.size(), 200'000);
          for (ahead = ahead.first(all); !ahead.empty();) {
            pieces.push_back(ahead.first(std::min<std::size_t>(some(), ahead.size())));
            ahead = ahead.subspan(pieces.back().size());
          }
          const Moved moved = way.from->write(pieces);
          ASSERT_TRUE(moved.then == Then::kMore || (moved.then == Then::kAwaitWrite && moved.bytes == 0));
          way.done += moved.bytes;
        } else {
          Bytes into(some());
          const Moved moved = way.to->read(into);
          ASSERT_TRUE(moved.then == Then::kMore || (moved.then == Then::kAwaitRead && moved.bytes == 0));
          way.got.insert(way.got.end(), into.begin(), into.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
        }
      }
    }
    EXPECT_TRUE(ways[0].got == ways[0].sent);
    EXPECT_TRUE(ways[1].got == ways[1].sent);
  }
}

// One thread each, waiting with poll(): no byte may be left where poll() does not see it.
TEST_P(ChannelOf, ALargeTransferThroughTinyBuffersEnds) {
  ASSERT_NO_FATAL_FAILURE(connect(smallest_buffer()));
  const Bytes sent = random_bytes(4'000'000, 3);
  std::thread writer([&] { EXPECT_NO_THROW(write_all(*a_, sockets_->fd[0], sent)); });
  Bytes got(sent.size());
  std::size_t size = 0;
  while (size < got.size()) {
    const Moved moved = b_->read(std::span(got).subspan(size, std::min<std::size_t>(got.size() - size, 50'000)));
    if (moved.then == Then::kClosed) break;
    wait_for(sockets_->fd[1], moved.then);
    size += moved.bytes;
  }
  writer.join();
  EXPECT_TRUE(got == sent);
}

TEST_P(ChannelOf, NothingToMoveMovesNothing) {
  ASSERT_NO_FATAL_FAILURE(connect());
  EXPECT_EQ(a_->read({}).then, Then::kMore);
  EXPECT_EQ(a_->write({}).then, Then::kMore);
  const std::span<const std::byte> pieces[2] = {};
  EXPECT_EQ(a_->write(pieces).bytes, 0U);
  Bytes into(10);
  EXPECT_EQ(b_->read(into).then, Then::kAwaitRead);
}

TEST_P(ChannelOf, ManySmallPiecesAreGathered) {
  ASSERT_NO_FATAL_FAILURE(connect());
  const Bytes sent = random_bytes(1000, 4);
  std::vector<std::span<const std::byte>> pieces;
  for (std::size_t i = 0; i < sent.size(); ++i) pieces.push_back(std::span(sent).subspan(i, 1));
  Bytes got;
  for (std::size_t done = 0; done < sent.size();) {
    const Moved moved = a_->write(std::span(pieces).subspan(done));
    ASSERT_GE(moved.bytes, std::min<std::size_t>(64, sent.size() - done));
    done += moved.bytes;
  }
  while (got.size() < sent.size()) {
    const Bytes part = read_all(*b_);
    got.insert(got.end(), part.begin(), part.end());
  }
  EXPECT_EQ(got, sent);
}

TEST_P(ChannelOf, ClosingIsSeenAfterWhatWasWrittenBeforeIt) {
  ASSERT_NO_FATAL_FAILURE(connect());
  const Bytes sent = random_bytes(30'000, 5);
  write_all(*a_, sockets_->fd[0], sent);
  a_.reset();
  sockets_->close_one(0);
  Bytes got(sent.size() + 10);
  std::size_t size = 0;
  Moved moved;
  do {
    moved = b_->read(std::span(got).subspan(size));
    wait_for(sockets_->fd[1], moved.then == Then::kClosed ? Then::kMore : moved.then);
    size += moved.bytes;
  } while (moved.then != Then::kClosed);
  EXPECT_EQ(size, sent.size());
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), got.begin()));
  EXPECT_EQ(b_->read(got).then, Then::kClosed) << "again";
}

// Would end the process by SIGPIPE where a signal was raised.
TEST_P(ChannelOf, WritingToAClosedPeerIsAnErrorAndNoSignal) {
  ASSERT_NO_FATAL_FAILURE(connect());
  sockets_->close_one(0);
  const Bytes bytes(1000);
  const std::span<const std::byte> pieces[] = {bytes};
  const std::string error = fabric_error_of([&] { b_->write(pieces); });
  EXPECT_TRUE(has(error, "closed the connection") || has(error, "connection reset by peer")) << error;
}

TEST_P(ChannelOf, AResetIsAnErrorInPlainWords) {
  if (!GetParam().tcp) return;  // AF_UNIX has none
  ASSERT_NO_FATAL_FAILURE(connect());
  const linger at_once{1, 0};
  setsockopt(sockets_->fd[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  sockets_->close_one(0);
  Bytes into(10);
  EXPECT_EQ(fabric_error_of([&] { b_->read(into); }), "connection reset by peer");
}

TEST(TlsChannel, ASmallHeadSharesItsRecordWithWhatFollows) {
  Sockets sockets;
  const TlsContext context(kKey);
  const auto a = context.channel(sockets.fd[0], Side::kConnects), b = context.channel(sockets.fd[1], Side::kAccepts);
  ASSERT_EQ(open_both(*a, *b), (std::array<std::string, 2>{}));
  EXPECT_EQ(read_all(*b).size(), 0U);
  const Bytes head(32), body(40'000);
  const std::span<const std::byte> pieces[] = {head, body};
  ASSERT_EQ(a->write(pieces).bytes, head.size() + body.size());
  // Records as they are on the wire: 5 bytes, the last two of them the length; 17 bytes more than what is in them.
  Bytes raw(100'000);
  const ssize_t size = recv(sockets.fd[1], raw.data(), raw.size(), 0);
  std::vector<std::size_t> contents;
  for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
    EXPECT_EQ(raw[at], std::byte{23});
    const std::size_t length =
        std::to_integer<std::size_t>(raw[at + 3]) << 8 | std::to_integer<std::size_t>(raw[at + 4]);
    contents.push_back(length - 17);
    at += 5 + length;
  }
  EXPECT_EQ(contents, (std::vector<std::size_t>{16384, 16384, 32 + 40'000 - 2 * 16384}));
}

TEST(TlsChannel, AnotherKeyOnEitherSideIsAClearErrorOnBoth) {
  for (const bool tcp : {false, true}) {
    for (const bool connector_is_wrong : {false, true}) {
      Sockets sockets(tcp);
      const auto a = TlsContext(connector_is_wrong ? kOtherKey : kKey).channel(sockets.fd[0], Side::kConnects);
      const auto b = TlsContext(connector_is_wrong ? kKey : kOtherKey).channel(sockets.fd[1], Side::kAccepts);
      for (const std::string& error : open_both(*a, *b)) {
        EXPECT_TRUE(has(error, "the two sides do not have the same secret")) << error;
      }
    }
  }
}

TEST(TlsChannel, APeerWithoutTlsIsAClearError) {
  Sockets sockets;
  const auto b = TlsContext(kKey).channel(sockets.fd[1], Side::kAccepts);
  ASSERT_EQ(send(sockets.fd[0], "slps\1\0\0\0 and more of it", 24, 0), 24);
  EXPECT_TRUE(has(fabric_error_of([&] { b->open(); }), "does not speak TLS"));
  Sockets others;
  const auto a = TlsContext(kKey).channel(others.fd[0], Side::kConnects);
  EXPECT_EQ(a->open().then, Then::kAwaitRead);
  others.close_one(1);  // as a plain acceptor does, that reads no greeting
  const std::string error = fabric_error_of([&] { a->open(); });
  EXPECT_TRUE(has(error, "do both sides use TLS?") || has(error, "reset by peer")) << error;
}

TEST(TlsChannel, AFlippedBitOnTheWayIsAnError) {
  for (const std::size_t bit : {0, 30, 43, 400, 8 * 120 - 1}) {
    Sockets left, right;
    const TlsContext context(kKey);
    const auto a = context.channel(left.fd[0], Side::kConnects), b = context.channel(right.fd[1], Side::kAccepts);
    Bytes passing(100'000);
    const auto carry = [&](int from, int to) {
      const ssize_t size = recv(from, passing.data(), passing.size(), 0);
      if (size > 0) {
        EXPECT_EQ(send(to, passing.data(), static_cast<std::size_t>(size), 0), size);
      }
    };
    for (Then x = Then::kAwaitRead, y = x; x != Then::kMore || y != Then::kMore;) {
      if (x != Then::kMore) x = a->open().then;
      carry(left.fd[1], right.fd[0]);
      if (y != Then::kMore) y = b->open().then;
      carry(right.fd[0], left.fd[1]);
    }
    const Bytes sent(98);
    const std::span<const std::byte> pieces[] = {sent};
    ASSERT_EQ(a->write(pieces).bytes, sent.size());
    const ssize_t size = recv(left.fd[1], passing.data(), passing.size(), 0);
    ASSERT_EQ(size, 5 + 98 + 17);
    passing[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_EQ(send(right.fd[0], passing.data(), static_cast<std::size_t>(size), 0), size);
    right.close_one(0);  // a length that became larger would be waited for
    Bytes into(200);
    try {
      EXPECT_EQ(b->read(into).then, Then::kClosed) << bit;
    } catch (const FabricError&) {
    }
    EXPECT_EQ(into, Bytes(200)) << bit;
  }
}

// Otherwise the bytes of one message would silently take the place of another's.
TEST(TlsChannel, OfferingOtherBytesThanWereNotTakenIsOurBug) {
  Sockets sockets(false, 4096);
  const TlsContext context(kKey);
  const auto a = context.channel(sockets.fd[0], Side::kConnects), b = context.channel(sockets.fd[1], Side::kAccepts);
  ASSERT_EQ(open_both(*a, *b), (std::array<std::string, 2>{}));
  const Bytes bytes(100'000, std::byte{1}), others(100'000, std::byte{2});
  const std::span<const std::byte> pieces[] = {bytes}, other_pieces[] = {others};
  while (a->write(pieces).then == Then::kMore) {
  }
  EXPECT_EQ(a->write(pieces).then, Then::kAwaitWrite);
  EXPECT_THROW(a->write(other_pieces), Error);
  EXPECT_THROW(a->write({}), Error);
}

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};

// A stranger with TLS of its own: no key of the job, but a certificate, and no questions about ours.
class Stranger : public Channel {
 public:
  Stranger(int fd, Side side) : context_(SSL_CTX_new(TLS_method())) {
    const std::unique_ptr<EVP_PKEY, Free> key(EVP_EC_gen("P-256"));
    const std::unique_ptr<X509, Free> certificate(X509_new());
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), key.get());
    EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
    EXPECT_EQ(SSL_CTX_use_certificate(context_.get(), certificate.get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_.get(), key.get()), 1);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), fd);
    side == Side::kConnects ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
  }
  Moved open() override {
    const int result = SSL_do_handshake(ssl_.get());
    if (result == 1) return {};
    if (SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ) return {0, Then::kAwaitRead};
    throw FabricError("refused");
  }
  Moved read(std::span<std::byte>) override { return {}; }
  Moved write(std::span<const std::span<const std::byte>>) override { return {}; }

 private:
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
};

TEST(TlsChannel, ACertificateDoesNotReplaceTheKey) {
  Sockets sockets;
  Stranger client(sockets.fd[0], Side::kConnects);
  const auto acceptor = TlsContext(kKey).channel(sockets.fd[1], Side::kAccepts);
  EXPECT_TRUE(has(open_both(client, *acceptor)[1], "do not have the same secret"));
  Sockets others;
  const auto connector = TlsContext(kKey).channel(others.fd[0], Side::kConnects);
  Stranger server(others.fd[1], Side::kAccepts);
  EXPECT_TRUE(has(open_both(*connector, server)[0], "do not have the same secret"));
  // The stranger's TLS is a working one: with itself it opens.
  Sockets own;
  Stranger one(own.fd[0], Side::kConnects), two(own.fd[1], Side::kAccepts);
  EXPECT_EQ(open_both(one, two), (std::array<std::string, 2>{}));
}

}  // namespace
}  // namespace slipstream
