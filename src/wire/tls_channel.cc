// SPDX-License-Identifier: Apache-2.0
//
// TLS by OpenSSL. What one must know about it:
// - Its own socket BIO calls write(), which raises SIGPIPE; ours calls send(MSG_NOSIGNAL).
// - With SSL_MODE_ENABLE_PARTIAL_WRITE one SSL_write() makes one record of at most 16 KiB. When the socket does not
//   take all of it, the record stays inside, and SSL_write() must be repeated with the same bytes: scratch_ keeps them.
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <slipstream/base/error.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "wire/channel.h"

namespace slipstream {
namespace {

using Then = Moved::Then;

constexpr std::size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr std::size_t kRecordsPerWrite = 16;         // so that one connection cannot keep the thread to itself
constexpr std::size_t kReadAheadBytes = 128 << 10;   // one recv() for several records
constexpr unsigned char kIdentity[] = "slipstream";  // the same for all: it tells an eavesdropper nothing about the key
constexpr unsigned char kCipher[] = {0x13, 0x01};    // TLS_AES_128_GCM_SHA256, the fastest one where there is AES-NI
constexpr const char* kCipherName = "TLS_AES_128_GCM_SHA256";

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
  void operator()(BIO_METHOD* method) const { BIO_meth_free(method); }
};

// The socket below TLS, and what last happened to it: OpenSSL reports only that something did.
struct Socket {
  int fd = -1;
  int error = 0;
  bool ended = false;
  bool holds = false;      // writes go to `held`, which is sent before the next write
  std::vector<char> held;  // a key update, some 30 bytes
};

// Tells OpenSSL how a recv() or send() ended.
int report(BIO* bio, ssize_t result, int retry_flag, std::size_t* moved) {
  BIO_clear_retry_flags(bio);
  auto* socket = static_cast<Socket*>(BIO_get_data(bio));
  if (result > 0) {
    *moved = static_cast<std::size_t>(result);
    return 1;
  }
  if (result == 0) {
    socket->ended = true;
  } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    BIO_set_flags(bio, retry_flag | BIO_FLAGS_SHOULD_RETRY);
  } else {
    socket->error = errno;
  }
  return 0;
}

int read_socket(BIO* bio, char* into, std::size_t size, std::size_t* moved) {
  const int fd = static_cast<Socket*>(BIO_get_data(bio))->fd;
  return report(bio, recv(fd, into, size, 0), BIO_FLAGS_READ, moved);
}

int write_socket(BIO* bio, const char* from, std::size_t size, std::size_t* moved) {
  auto* socket = static_cast<Socket*>(BIO_get_data(bio));
  if (socket->holds) {
    socket->held.insert(socket->held.end(), from, from + size);
    *moved = size;
    return 1;
  }
  while (!socket->held.empty()) {
    std::size_t left = 0;
    const ssize_t sent = send(socket->fd, socket->held.data(), socket->held.size(), MSG_NOSIGNAL | MSG_MORE);
    if (report(bio, sent, BIO_FLAGS_WRITE, &left) != 1) return 0;
    socket->held.erase(socket->held.begin(), socket->held.begin() + sent);
  }
  return report(bio, send(socket->fd, from, size, MSG_NOSIGNAL), BIO_FLAGS_WRITE, moved);
}

long control_socket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return static_cast<Socket*>(BIO_get_data(bio))->ended ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// The pre-shared key in OpenSSL's form: a session to resume.
SSL_SESSION* session_of(SSL* ssl) {
  const auto* key = static_cast<const Key*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  std::unique_ptr<SSL_SESSION, Free> session(SSL_SESSION_new());
  if (session == nullptr ||
      SSL_SESSION_set1_master_key(session.get(), reinterpret_cast<const unsigned char*>(key->data()), key->size()) !=
          1 ||
      SSL_SESSION_set_cipher(session.get(), SSL_CIPHER_find(ssl, kCipher)) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1) {
    return nullptr;
  }
  return session.release();
}

int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* size, SSL_SESSION** session) {
  *identity = kIdentity;
  *size = sizeof kIdentity - 1;
  *session = session_of(ssl);
  return *session != nullptr;
}

int find_key(SSL* ssl, const unsigned char* identity, std::size_t size, SSL_SESSION** session) {
  const bool ours = size == sizeof kIdentity - 1 && std::memcmp(identity, kIdentity, size) == 0;
  *session = ours ? session_of(ssl) : nullptr;  // none: it goes on without, and fails for lack of a certificate
  return !ours || *session != nullptr;
}

}  // namespace

struct TlsContext::State {
  Key key;
  std::uint64_t records_per_key;
  std::unique_ptr<BIO_METHOD, Free> method;
  std::unique_ptr<SSL_CTX, Free> context;
};

namespace {

// Cuts the pieces of one write() into records.
class Reader {
 public:
  explicit Reader(std::span<const std::span<const std::byte>> pieces) : pieces_(pieces) { skip(0); }

  // The next record; empty at the end. If a piece is too short for one, it is copied to `scratch` together with what
  // follows: a small head must not become a record, and a packet, of its own.
  std::span<const std::byte> record(std::span<std::byte> scratch) const {
    if (pieces_.empty()) return {};
    const auto first = pieces_.front().subspan(offset_);
    if (pieces_.size() == 1 || first.size() >= kRecordBytes) return first.first(std::min(first.size(), kRecordBytes));
    std::size_t size = 0;
    each_part(scratch.size(), [&](std::span<const std::byte> part) {
      std::copy(part.begin(), part.end(), scratch.begin() + static_cast<std::ptrdiff_t>(size));
      size += part.size();
      return true;
    });
    return scratch.first(size);
  }

  bool begins_with(std::span<const std::byte> bytes) const {
    std::size_t compared = 0;
    each_part(bytes.size(), [&](std::span<const std::byte> part) {
      if (std::memcmp(part.data(), bytes.data() + compared, part.size()) != 0) return false;
      compared += part.size();
      return true;
    });
    return compared == bytes.size();
  }

  void skip(std::size_t bytes) {
    offset_ += bytes;
    while (!pieces_.empty() && offset_ >= pieces_.front().size()) {
      offset_ -= pieces_.front().size();
      pieces_ = pieces_.subspan(1);
    }
  }

 private:
  // Calls visit with the next `most` bytes, piece by piece, until visit returns false.
  template <typename Visit>
  void each_part(std::size_t most, Visit visit) const {
    std::size_t offset = offset_;
    for (const auto piece : pieces_) {
      if (most == 0) return;
      const auto part = piece.subspan(offset, std::min(piece.size() - offset, most));
      offset = 0;
      most -= part.size();
      if (!part.empty() && !visit(part)) return;
    }
  }

  std::span<const std::span<const std::byte>> pieces_;
  std::size_t offset_ = 0;  // in the first piece; less than its size
};

class TlsChannel : public Channel {
 public:
  TlsChannel(int fd, Side side, std::shared_ptr<const TlsContext::State> state)
      : state_(std::move(state)), ssl_(SSL_new(state_->context.get())), scratch_(kRecordBytes) {
    socket_.fd = fd;
    BIO* bio = BIO_new(state_->method.get());
    check(ssl_ != nullptr && bio != nullptr, "OpenSSL cannot make a connection: is there memory left?");
    BIO_set_data(bio, &socket_);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_.get(), bio, bio);
    if (side == Side::kConnects) {
      SSL_set_connect_state(ssl_.get());
      SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);  // no certificate is known: a key or nothing
    } else {
      SSL_set_accept_state(ssl_.get());
    }
  }

  Moved open() override {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    if (result != 1) {
      const Moved moved = outcome(result);
      if (moved.then == Then::kClosed) {
        fail<FabricError>("the peer closed the connection during the TLS handshake; do both sides use TLS?");
      }
      return moved;
    }
    // "Reused" is OpenSSL's word for a pre-shared key. A peer that got here without one has a certificate, which is
    // worth nothing here.
    if (SSL_session_reused(ssl_.get()) != 1) fail_secret();
    return {};
  }

  Moved read(std::span<std::byte> into) override {
    std::size_t total = 0;
    while (total < into.size()) {
      std::size_t got = 0;
      ERR_clear_error();
      const int result = SSL_read_ex(ssl_.get(), into.data() + total, into.size() - total, &got);
      if (result != 1) {
        const Moved moved = outcome(result);
        if (total == 0) return moved;
        break;  // the next call sees it again
      }
      total += got;
    }
    return {total, Then::kMore};
  }

  Moved write(std::span<const std::span<const std::byte>> pieces) override {
    Reader reader(pieces);
    std::size_t total = 0;
    for (std::size_t record = 0; record < kRecordsPerWrite; ++record) {
      std::span<const std::byte> bytes;
      if (pending_ > 0) {
        bytes = std::span(scratch_).first(pending_);
        check(reader.begins_with(bytes), "write() was not offered again what the last one did not take");
      } else {
        bytes = reader.record(scratch_);
        if (bytes.empty()) break;
        if (records_ >= state_->records_per_key) change_key();
      }
      std::size_t sent = 0;
      ERR_clear_error();
      const int result = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent);
      if (result != 1) {
        const Moved moved = outcome(result);
        if (moved.then == Then::kClosed) throw FabricError(connection_error(EPIPE));
        if (bytes.data() != scratch_.data()) std::copy(bytes.begin(), bytes.end(), scratch_.begin());
        pending_ = bytes.size();
        if (total == 0) return moved;
        break;
      }
      pending_ = 0;
      records_ += 1;
      total += sent;
      reader.skip(sent);
    }
    return {total, Then::kMore};
  }

 private:
  [[noreturn]] static void fail_secret() {
    fail<FabricError>("the two sides do not have the same secret; give every machine of the job the same one");
  }

  // Holds the key-update message back until the next record is sent. While OpenSSL waits to write it, OpenSSL would not
  // read either, and two sides waiting in this way would wait forever.
  void change_key() {
    socket_.holds = true;
    ERR_clear_error();
    check(SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1 && SSL_do_handshake(ssl_.get()) == 1,
          "OpenSSL cannot change the key");
    socket_.holds = false;
    records_ = 0;
  }

  // What the result of a failed call means; throws if the connection is lost.
  Moved outcome(int result) const {
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return {0, Then::kAwaitRead};
      case SSL_ERROR_WANT_WRITE:
        return {0, Then::kAwaitWrite};
      case SSL_ERROR_ZERO_RETURN:
        return {0, Then::kClosed};
      default:
        break;
    }
    if (socket_.error != 0) throw FabricError(connection_error(socket_.error));
    if (socket_.ended) return {0, Then::kClosed};
    const unsigned long error = ERR_peek_error();
    switch (ERR_GET_REASON(error)) {
      case SSL_R_BINDER_DOES_NOT_VERIFY:           // the accepting side, about another key
      case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:    // the connecting side, told so by OpenSSL
      case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:        // … or by another library
      case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:  // the accepting side, about a peer that offers no key of ours
      case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:    // the connecting side, told so
      case SSL_R_CERTIFICATE_VERIFY_FAILED:        // the connecting side, about a peer that shows a certificate instead
        fail_secret();
      case SSL_R_WRONG_VERSION_NUMBER:
      case SSL_R_HTTP_REQUEST:
      case SSL_R_PACKET_LENGTH_TOO_LONG:
        fail<FabricError>("the peer does not speak TLS; switch it on at both sides or at none");
      default: {
        const char* reason = ERR_reason_error_string(error);
        fail<FabricError>("TLS failed: {}", reason != nullptr ? reason : "OpenSSL does not say why");
      }
    }
  }

  std::shared_ptr<const TlsContext::State> state_;
  Socket socket_;
  std::unique_ptr<SSL, Free> ssl_;
  std::vector<std::byte> scratch_;
  std::size_t pending_ = 0;    // bytes of scratch_ that are encrypted and have not left yet
  std::uint64_t records_ = 0;  // with the present key
};

}  // namespace

TlsContext::TlsContext(const Key& key, std::uint64_t records_per_key) {
  auto state = std::make_shared<State>();
  state->key = derive(key, "tls pre-shared key");
  state->records_per_key = records_per_key;
  state->method.reset(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "slipstream socket"));
  state->context.reset(SSL_CTX_new(TLS_method()));
  BIO_METHOD* method = state->method.get();
  SSL_CTX* context = state->context.get();
  check(method != nullptr && context != nullptr, "OpenSSL cannot be used: {}",
        ERR_reason_error_string(ERR_peek_error()) != nullptr ? ERR_reason_error_string(ERR_peek_error()) : "no reason");
  BIO_meth_set_read_ex(method, read_socket);
  BIO_meth_set_write_ex(method, write_socket);
  BIO_meth_set_ctrl(method, control_socket);

  check(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
            SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
            SSL_CTX_set_ciphersuites(context, kCipherName) == 1 && SSL_CTX_set_num_tickets(context, 0) == 1,
        "OpenSSL has no TLS 1.3 with {}", kCipherName);
  SSL_CTX_set_app_data(context, &state->key);
  SSL_CTX_set_psk_use_session_callback(context, offer_key);
  SSL_CTX_set_psk_find_session_callback(context, find_key);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_clear_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadAheadBytes);
  state_ = std::move(state);
}

std::unique_ptr<Channel> TlsContext::channel(int fd, Side side) const {
  return std::make_unique<TlsChannel>(fd, side, state_);
}

}  // namespace slipstream
