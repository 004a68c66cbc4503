// SPDX-License-Identifier: Apache-2.0
//
// Link: one connection between two processes of a job: a socket, the channel on it (plain or TLS), the greeting that
// proves both sides know the secret, then frames in both directions. Its owner (LinkEvents) decides what is sent and
// where received bytes go. Everything happens on the I/O thread; nothing blocks.
//
// Invariant: no frame is looked at before both sides are authenticated. Whatever goes wrong with the connection ends in
// link_lost(), once; after it, or after close(), no further call reaches the owner. A frame that the owner refuses does
// not close the connection: the peer can still be told why, and whatever else it sends is discarded.
#pragma once

#include <array>
#include <asio/ip/tcp.hpp>
#include <memory>
#include <string>
#include <vector>

#include "wire/channel.h"
#include "wire/frame.h"
#include "wire/greeting.h"

namespace slipstream {

class Link;

// A frame on its way out. `pieces` stay valid until frame_left().
struct OutFrame {
  FrameHead head;
  std::array<std::span<const std::byte>, 2> pieces{};
  void* cookie = nullptr;  // the owner's
};

class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  virtual void link_ready(Link& link) = 0;  // authenticated
  virtual void frame_begins(Link& link,
                            const FrameHead& head) = 0;  // once per frame; throws FabricError to refuse it
  // Memory for the payload from byte `at` on; not empty. Called whenever bytes come. May throw FabricError.
  virtual std::span<std::byte> payload_memory(Link& link, const FrameHead& head, std::uint64_t at) = 0;
  virtual void frame_arrived(Link& link, const FrameHead& head) = 0;  // may throw FabricError
  virtual bool next_frame(Link& link, OutFrame& out) = 0;             // false: there is nothing to send
  virtual void frame_left(Link& link, const OutFrame& out) = 0;
  virtual void link_refused(Link& link, const std::string& why) = 0;  // a frame was refused; no more come
  // `closed`: the peer closed it, or it broke after authentication. `why` says what happened.
  virtual void link_lost(Link& link, bool closed, const std::string& why) = 0;
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  Link(asio::ip::tcp::socket socket, const TlsContext* tls, Side side, const Key& key, const Introduction& mine,
       LinkEvents& events);

  void start();
  void wake();    // call when there may be something to send
  void finish();  // nothing more will be sent: the peer sees the end of the stream; reading goes on
  void close();
  void rescue();  // copies the rest of a half-sent frame, whose memory may go away

  bool ready() const { return ready_; }
  bool closed() const { return closed_; }
  bool idle() const { return !sending_; }  // no frame is half sent
  const Introduction& theirs() const { return greeting_.theirs(); }
  std::string address() const { return address_; }  // of the peer, for people

  // For the owner's use:
  int peer = kNobody;
  double opened_at = 0;
  std::string text;  // payload of the frame that is arriving, if it is a text
  static constexpr int kNobody = -2, kHub = -1;

 private:
  static constexpr std::size_t kStagingBytes = 4096;
  static constexpr std::uint64_t kTurnBytes = 1 << 20;

  template <typename Work>
  void guarded(const Work& work);
  void introduce();
  void read();
  void read_later();
  template <typename Work>
  bool heard(const Work& work);
  void write();
  void await(Moved::Then then);
  void on_ready(bool for_reading);
  void lose(bool closed, const std::string& why);

  asio::ip::tcp::socket socket_;
  std::unique_ptr<Channel> channel_;
  Greeting greeting_;
  LinkEvents& events_;
  std::string address_;
  bool opened_ = false, ready_ = false, closed_ = false, finishing_ = false, finished_ = false;
  bool awaits_read_ = false, awaits_write_ = false;
  bool deaf_ = false;   // a frame was refused
  std::string broken_;  // why nothing can be written any more; what the peer wrote before is still read

  std::array<std::byte, kStagingBytes> staging_;  // heads, and what came with them
  std::size_t staged_from_ = 0, staged_to_ = 0;
  bool receiving_ = false;
  FrameHead in_;
  std::uint64_t received_ = 0;  // bytes of its payload

  bool sending_ = false;
  OutFrame out_;
  FrameHead::Bytes out_head_{};
  std::uint64_t sent_ = 0;          // bytes of head and payload
  std::vector<std::byte> rescued_;  // the payload of a frame whose memory has gone away
};

}  // namespace slipstream
