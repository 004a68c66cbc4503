// SPDX-License-Identifier: Apache-2.0
#include "wire/link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <slipstream/base/error.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/post.hpp>
#include <cstring>

namespace slipstream {
namespace {

// Keeps few unsent bytes in the kernel, so that an urgent frame leaves soon.
constexpr int kUnsentBytes = 64 << 10;

std::string address_of(const asio::ip::tcp::socket& socket) {
  asio::error_code error;
  const auto remote = socket.remote_endpoint(error);
  return error ? "an address unknown" : fmt::format("{}:{}", remote.address().to_string(), remote.port());
}

}  // namespace

Link::Link(asio::ip::tcp::socket socket, const TlsContext* tls, Side side, const Key& key, const Introduction& mine,
           LinkEvents& events)
    : socket_(std::move(socket)), greeting_(side, key, mine), events_(events), address_(address_of(socket_)) {
  asio::error_code ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof kUnsentBytes);
  channel_ = tls != nullptr ? tls->channel(socket_.native_handle(), side) : plain_channel(socket_.native_handle());
}

template <typename Work>
void Link::guarded(const Work& work) {
  if (closed_) return;
  try {
    work();
  } catch (const std::exception& e) {
    if (!ready_ && opened_) {  // tell the other side why, as far as the socket takes it now
      try {
        const std::span<const std::byte> says = greeting_.says();
        if (!says.empty()) channel_->write(std::span(&says, 1));
      } catch (const std::exception&) {
      }
    }
    lose(ready_, e.what());  // `closed` if it had authenticated: a broken connection means that the peer is gone
  }
}

void Link::start() {
  guarded([this] { introduce(); });
}

void Link::introduce() {
  while (!opened_) {
    const Moved moved = channel_->open();
    if (moved.then == Moved::Then::kClosed) return lose(true, "closed while it was opened");
    if (moved.then != Moved::Then::kMore) return await(moved.then);
    opened_ = true;
  }
  while (!greeting_.done()) {
    Moved moved;
    if (const std::span<const std::byte> says = greeting_.says(); !says.empty()) {
      moved = channel_->write(std::span(&says, 1));
      greeting_.said(moved.bytes);
    } else {
      moved = channel_->read(greeting_.wants());
      if (moved.bytes > 0) greeting_.take(moved.bytes);
      if (moved.then == Moved::Then::kClosed) return lose(true, "closed before it had introduced itself");
    }
    if (moved.bytes == 0 && moved.then != Moved::Then::kMore) return await(moved.then);
  }
  ready_ = true;
  events_.link_ready(*this);
  read();
  write();
}

// Calls the owner about received frames. False: it refused one.
template <typename Work>
bool Link::heard(const Work& work) {
  try {
    work();
    return true;
  } catch (const std::exception& e) {
    deaf_ = true;
    asio::post(socket_.get_executor(), [self = shared_from_this(), why = std::string(e.what())] {
      if (!self->closed_) self->events_.link_refused(*self, why);
    });
    return false;
  }
}

void Link::read_later() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->guarded([&] { self->read(); }); });
}

void Link::read() {
  std::uint64_t turn = 0;
  while (!closed_) {
    if (turn > kTurnBytes) return read_later();  // let other links have their turn
    Moved moved;
    if (deaf_) {
      moved = channel_->read(staging_);
      turn += moved.bytes;
      if (moved.then == Moved::Then::kClosed) return lose(true, "it closed the connection");
      if (moved.bytes == 0 && moved.then != Moved::Then::kMore) return await(moved.then);
      continue;
    }
    if (!receiving_) {
      if (staged_to_ - staged_from_ < FrameHead::kBytes) {
        std::memmove(staging_.data(), staging_.data() + staged_from_, staged_to_ - staged_from_);
        staged_to_ -= std::exchange(staged_from_, 0);
        moved = channel_->read(std::span(staging_).subspan(staged_to_));
        staged_to_ += moved.bytes;
        turn += moved.bytes;
        if (moved.then == Moved::Then::kClosed) return lose(true, "it closed the connection");
        if (moved.bytes == 0 && moved.then != Moved::Then::kMore) return await(moved.then);
        continue;
      }
      FrameHead::Bytes bytes;
      std::memcpy(bytes.data(), staging_.data() + staged_from_, bytes.size());
      staged_from_ += bytes.size();
      receiving_ = true;
      received_ = 0;
      const bool good = heard([&] {
        in_ = FrameHead::unpack(bytes, greeting_.theirs().epoch);
        events_.frame_begins(*this, in_);
      });
      if (!good) continue;
    }
    while (received_ < in_.length) {
      std::span<std::byte> memory;
      if (!heard([&] { memory = events_.payload_memory(*this, in_, received_); })) break;
      if (closed_) return;
      memory = memory.first(std::min<std::uint64_t>(memory.size(), in_.length - received_));
      if (staged_from_ < staged_to_) {
        const std::size_t count = std::min(memory.size(), staged_to_ - staged_from_);
        std::memcpy(memory.data(), staging_.data() + staged_from_, count);
        staged_from_ += count;
        received_ += count;
        continue;
      }
      moved = channel_->read(memory);
      received_ += moved.bytes;
      turn += moved.bytes;
      if (moved.then == Moved::Then::kClosed) return lose(true, "it closed the connection in the middle of a message");
      if (moved.bytes == 0 && moved.then != Moved::Then::kMore) return await(moved.then);
    }
    if (deaf_) continue;
    receiving_ = false;
    heard([&] { events_.frame_arrived(*this, in_); });
  }
}

void Link::write() {
  while (!closed_ && ready_ && broken_.empty()) {
    if (!sending_) {
      if (!events_.next_frame(*this, out_)) break;
      sending_ = true;
      out_head_ = out_.head.pack();
      sent_ = 0;
    }
    std::array<std::span<const std::byte>, 3> all{std::span<const std::byte>(out_head_), out_.pieces[0],
                                                  out_.pieces[1]};
    std::array<std::span<const std::byte>, 3> rest;
    std::size_t count = 0;
    std::uint64_t skip = sent_, left = 0;
    for (const auto& piece : all) {
      const std::size_t gone = std::min<std::uint64_t>(skip, piece.size());
      skip -= gone;
      if (gone == piece.size()) continue;
      rest[count++] = piece.subspan(gone);
      left += piece.size() - gone;
    }
    Moved moved;
    try {
      moved = channel_->write(std::span(rest).first(count));
    } catch (const FabricError& e) {  // its last messages may have come already: they say better why
      broken_ = e.what();
      return read_later();  // not now, because read() may have called us
    }
    sent_ += moved.bytes;
    if (moved.bytes == left) {
      sending_ = false;
      events_.frame_left(*this, out_);
    } else if (moved.then != Moved::Then::kMore) {
      return await(moved.then);
    }
  }
  if (!closed_ && finishing_ && !sending_ && !finished_ && broken_.empty()) {
    finished_ = true;
    asio::error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }
}

void Link::wake() {
  if (ready_ && !awaits_write_) guarded([this] { write(); });
}

void Link::finish() {
  finishing_ = true;
  wake();
}

void Link::await(Moved::Then then) {
  if (!broken_.empty()) return lose(true, broken_);  // nothing is left to read either
  bool& waiting = then == Moved::Then::kAwaitWrite ? awaits_write_ : awaits_read_;
  if (waiting) return;
  waiting = true;
  const bool reads = then != Moved::Then::kAwaitWrite;
  const auto what = reads ? asio::ip::tcp::socket::wait_read : asio::ip::tcp::socket::wait_write;
  socket_.async_wait(what, [self = shared_from_this(), reads](const asio::error_code&) { self->on_ready(reads); });
}

void Link::on_ready(bool for_reading) {
  (for_reading ? awaits_read_ : awaits_write_) = false;
  guarded([&] {
    if (!ready_) return introduce();
    if (!awaits_read_) read();  // also after a wait for writing: TLS may need to write in order to read
    if (!closed_ && !awaits_write_) write();
  });
}

void Link::rescue() {
  if (!sending_ || closed_) return;
  std::vector<std::byte> copy;
  for (const auto& piece : out_.pieces) copy.insert(copy.end(), piece.begin(), piece.end());
  rescued_ = std::move(copy);
  out_.pieces = {std::span<const std::byte>(rescued_), {}};
  out_.cookie = nullptr;
}

void Link::lose(bool closed, const std::string& why) {
  if (closed_) return;
  close();
  // Later, so that owners may walk over their links while waking them.
  asio::post(socket_.get_executor(),
             [self = shared_from_this(), closed, why] { self->events_.link_lost(*self, closed, why); });
}

void Link::close() {
  if (std::exchange(closed_, true)) return;
  asio::error_code ignored;
  socket_.close(ignored);
}

}  // namespace slipstream
