// SPDX-License-Identifier: Apache-2.0
//
// Peers that tests write byte by byte: a Stranger is a bare connection; a RawPeer knows the secret, greets, and then says
// whatever frames it is told to, right or wrong. One thread each.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <slipstream/base/error.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "wire/channel.h"
#include "wire/frame.h"
#include "wire/greeting.h"
#include "wire/link.h"
#include "wire/roster.h"

namespace slipstream::test {

using Bytes = std::vector<std::byte>;

class Stranger {
 public:
  explicit Stranger(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0) << std::strerror(errno);
    fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  }
  Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Stranger() {
    if (fd_ >= 0) close(fd_);
  }

  // False: the other side has closed before all had left.
  bool say(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
      } else if (errno != EAGAIN) {
        return false;
      } else {
        pollfd one{fd_, POLLOUT, 0};
        if (poll(&one, 1, 60'000) != 1) return false;
      }
    }
    return true;
  }

  // Reads until the other side closes, or for so long; how many bytes came.
  std::size_t hear_to_the_end() {
    std::size_t all = 0;
    for (char buffer[4096];;) {
      pollfd one{fd_, POLLIN, 0};
      if (poll(&one, 1, 60'000) != 1) return all;
      const ssize_t got = recv(fd_, buffer, sizeof buffer, 0);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return all;
      if (got > 0) all += static_cast<std::size_t>(got);
    }
  }

  int fd() const { return fd_; }

 private:
  int fd_;
};

class RawPeer {
 public:
  // Greets; throws FabricError where it is refused. With a key for TLS everything is encrypted.
  RawPeer(int port, const Key& key, const Introduction& mine, const Key* tls = nullptr)
      : outside_(port), epoch_(mine.epoch), greeting_(Side::kConnects, key, mine) {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, inside_), 0);
    for (const int fd : inside_) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    channel_ = tls != nullptr ? TlsContext(*tls).channel(inside_[0], Side::kConnects) : plain_channel(inside_[0]);
    try {
      while (channel_->open().then != Moved::Then::kMore) pump();
      while (!greeting_.done()) {
        if (const auto says = greeting_.says(); !says.empty()) {
          greeting_.said(write_some(says));
        } else {
          const Moved moved = channel_->read(greeting_.wants());
          if (moved.then == Moved::Then::kClosed) fail<FabricError>("closed");
          if (moved.bytes > 0) greeting_.take(moved.bytes);
          if (moved.bytes == 0) pump();
        }
      }
    } catch (...) {
      close_inside();
      throw;
    }
  }
  ~RawPeer() { close_inside(); }
  RawPeer(const RawPeer&) = delete;

  void say(FrameHead head, std::span<const std::byte> payload = {}) {
    head.epoch = epoch_;
    head.length = payload.size();
    say_raw(head.pack());
    say_raw(payload);
  }
  void say(FrameHead::Kind kind, const std::string& text = {}) { say({.kind = kind}, std::as_bytes(std::span(text))); }
  void say_raw(std::span<const std::byte> bytes) {
    while (!bytes.empty() && !ended_) bytes = bytes.subspan(write_some(bytes));
    pump(0);
  }

  // The next frame of this kind; others are passed over. False: the other side has closed.
  bool hear(FrameHead::Kind kind, std::string& text) {
    for (FrameHead::Kind any{}; hear_any(any, text);) {
      if (any == kind) return true;
    }
    return false;
  }
  bool hear_any(FrameHead::Kind& kind, std::string& text) {
    FrameHead::Bytes bytes;
    if (!read_all(bytes)) return false;
    const FrameHead head = FrameHead::unpack(bytes, epoch_);
    kind = head.kind;
    text.resize(head.length);
    return read_all(std::as_writable_bytes(std::span(text)));
  }
  std::string failure() {
    std::string text;
    return hear(FrameHead::Kind::kFailure, text) ? text : "closed without a word";
  }

  const Bytes& said() const { return said_; }  // every byte as it was on the wire

 private:
  // Carries bytes between the channel and the connection, and keeps what left.
  void pump(int patience_ms = 60'000) {
    std::byte buffer[16384];
    for (;;) {
      bool moved = false;
      ssize_t got = recv(inside_[1], buffer, sizeof buffer, 0);
      if (got > 0) {
        const auto bytes = std::span(buffer).first(static_cast<std::size_t>(got));
        said_.insert(said_.end(), bytes.begin(), bytes.end());
        outside_.say(bytes);
        moved = true;
      }
      got = recv(outside_.fd(), buffer, sizeof buffer, 0);
      if (got > 0) {
        for (ssize_t sent = 0; sent < got;) {
          const ssize_t more = send(inside_[1], buffer + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
          if (more <= 0) return;
          sent += more;
        }
        moved = true;
      } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
        if (!std::exchange(ended_, true)) shutdown(inside_[1], SHUT_WR);
        return;
      }
      if (moved) return;
      pollfd both[] = {{inside_[1], POLLIN, 0}, {outside_.fd(), POLLIN, 0}};
      if (patience_ms == 0) return;
      ASSERT_GT(poll(both, 2, patience_ms), 0) << "nothing happened for a minute";
    }
  }

  std::size_t write_some(std::span<const std::byte> bytes) {
    const std::span<const std::byte> pieces[] = {bytes.first(std::min<std::size_t>(bytes.size(), 16384))};
    const Moved moved = channel_->write(pieces);
    pump(moved.bytes == 0 ? 60'000 : 0);
    return moved.bytes;
  }

  bool read_all(std::span<std::byte> into) {
    while (!into.empty()) {
      const Moved moved = channel_->read(into);
      if (moved.then == Moved::Then::kClosed) return false;
      into = into.subspan(moved.bytes);
      if (moved.bytes == 0) pump();
    }
    return true;
  }

  void close_inside() {
    channel_.reset();
    for (int& fd : inside_) {
      if (fd >= 0) close(std::exchange(fd, -1));
    }
  }

  Stranger outside_;
  const std::uint32_t epoch_;
  Greeting greeting_;
  int inside_[2] = {-1, -1};
  std::unique_ptr<Channel> channel_;
  bool ended_ = false;
  Bytes said_;
};

// One that has joined a job at its hub. The roster comes when all have.
class RawMember {
 public:
  RawMember(int hub_port, const Key& key, int rank, int ranks, bool tls = false)
      : rank_(rank), key_(key), tls_(tls), hub(hub_port, key, {.epoch = 0, .from = rank, .to = Link::kHub}, tls_key()) {
    hub.say(FrameHead::Kind::kJoin, JoinText{.seat = rank, .seats = ranks, .address = {"127.0.0.1", 1}}.to_text());
  }

  const Roster& roster() {
    std::string text;
    if (roster_.ranks.empty() && hub.hear(FrameHead::Kind::kRoster, text)) roster_ = Roster::from_text(text);
    return roster_;
  }
  // Connects to a lower rank, as the right one or pretending to be another.
  std::unique_ptr<RawPeer> connect(int to) { return connect(to, {.epoch = roster().epoch, .from = rank_, .to = to}); }
  std::unique_ptr<RawPeer> connect(int to, const Introduction& mine) {
    const Address at = roster().ranks[static_cast<std::size_t>(to)].address;
    return std::make_unique<RawPeer>(at.port, roster().key, mine, tls_key());
  }
  // Everything is encrypted with the job's secret; the greeting inside is made with the roster's.
  const Key* tls_key() const { return tls_ ? &key_ : nullptr; }

 private:
  const int rank_;
  const Key key_;
  const bool tls_;
  Roster roster_;

 public:
  RawPeer hub;
};

}  // namespace slipstream::test
