// SPDX-License-Identifier: Apache-2.0
#include "wire/channel.h"

#include <slipstream/base/error.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <system_error>

namespace slipstream {
namespace {

using Then = Moved::Then;

class PlainChannel : public Channel {
 public:
  explicit PlainChannel(int fd) : fd_(fd) {}

  Moved open() override { return {}; }

  Moved read(std::span<std::byte> into) override {
    if (into.empty()) return {};  // recv() of nothing looks like the end of the stream
    for (;;) {
      const ssize_t got = recv(fd_, into.data(), into.size(), 0);
      if (got > 0) return {static_cast<std::size_t>(got), Then::kMore};
      if (got == 0) return {0, Then::kClosed};
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {0, Then::kAwaitRead};
      if (errno != EINTR) throw FabricError(connection_error(errno));
    }
  }

  Moved write(std::span<const std::span<const std::byte>> pieces) override {
    std::array<iovec, 64> list;
    std::size_t count = 0;
    for (const auto piece : pieces) {
      if (piece.empty()) continue;
      if (count == list.size()) break;
      list[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
    }
    if (count == 0) return {};
    msghdr message{};
    message.msg_iov = list.data();
    message.msg_iovlen = count;
    for (;;) {
      const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
      if (sent >= 0) return {static_cast<std::size_t>(sent), Then::kMore};
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {0, Then::kAwaitWrite};
      if (errno != EINTR) throw FabricError(connection_error(errno));
    }
  }

 private:
  int fd_;
};

}  // namespace

std::unique_ptr<Channel> plain_channel(int fd) { return std::make_unique<PlainChannel>(fd); }

std::string connection_error(int error) {
  if (error == EPIPE) return "the peer has closed the connection";
  std::string text = std::generic_category().message(error);
  text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace slipstream
