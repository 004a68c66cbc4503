// SPDX-License-Identifier: Apache-2.0
#include "wire/secret.h"

#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <slipstream/base/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <memory>
#include <system_error>
#include <vector>

namespace slipstream {
namespace {

constexpr std::size_t kFewestCharacters = 16;
constexpr std::size_t kLargestFileBytes = 4096;
constexpr const char* kHowToMakeOne = "make one with: head -c 32 /dev/urandom | base64 > FILE && chmod 600 FILE";

// Part of the protocol: every machine of a job derives the same key from the same text.
constexpr std::string_view kSalt = "slipstream secret";
constexpr std::string_view kInfo = "job key 1";

struct Free {
  void operator()(EVP_KDF* kdf) const { EVP_KDF_free(kdf); }
  void operator()(EVP_KDF_CTX* context) const { EVP_KDF_CTX_free(context); }
};

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

Key random_key() {
  Key key;
  if (RAND_bytes(raw(key.data()), static_cast<int>(key.size())) != 1) {
    fail<Error>("the system's random number generator failed");
  }
  return key;
}

Key key_of(std::string_view secret) {
  const std::size_t last = secret.find_last_not_of(" \t\r\n\v\f");
  secret = secret.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (secret.size() < kFewestCharacters) {
    fail<ConfigError>("the secret has {} characters, at least {} are needed; {}", secret.size(), kFewestCharacters,
                      kHowToMakeOne);
  }
  const auto octets = [](const char* name, std::string_view text) {
    return OSSL_PARAM_construct_octet_string(name, const_cast<char*>(text.data()), text.size());
  };
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                                   octets(OSSL_KDF_PARAM_KEY, secret), octets(OSSL_KDF_PARAM_SALT, kSalt),
                                   octets(OSSL_KDF_PARAM_INFO, kInfo), OSSL_PARAM_construct_end()};
  const std::unique_ptr<EVP_KDF, Free> hkdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  check(hkdf != nullptr, "OpenSSL has no HKDF");
  const std::unique_ptr<EVP_KDF_CTX, Free> context(EVP_KDF_CTX_new(hkdf.get()));
  Key key;
  check(context && EVP_KDF_derive(context.get(), raw(key.data()), key.size(), parameters) == 1,
        "OpenSSL's HKDF failed");
  return key;
}

Key derive(const Key& key, std::string_view purpose, std::span<const std::byte> context) {
  std::vector<std::byte> message(purpose.size() + 1 + context.size());
  const auto* text = reinterpret_cast<const std::byte*>(purpose.data());
  std::copy(text, text + purpose.size(), message.begin());
  std::copy(context.begin(), context.end(), message.begin() + static_cast<std::ptrdiff_t>(purpose.size()) + 1);
  Key code;
  unsigned size = 0;
  const unsigned char* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), raw(message.data()),
                                   message.size(), raw(code.data()), &size);
  check(made != nullptr && size == code.size(), "OpenSSL's HMAC-SHA256 failed");
  return code;
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string read_secret_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const std::string why = reason(errno);
    fail<ConfigError>("the secret's file '{}' cannot be opened: {}; {}", path, why, kHowToMakeOne);
  }
  const auto close_it = [](const int* open_fd) { ::close(*open_fd); };
  const std::unique_ptr<const int, decltype(close_it)> closes(&fd, close_it);

  struct stat status {};
  if (fstat(fd, &status) != 0) fail<ConfigError>("the secret's file '{}': {}", path, reason(errno));
  if (S_ISDIR(status.st_mode)) fail<ConfigError>("the secret's file '{}' is a directory; name a file in it", path);
  if ((status.st_mode & 077) != 0) {
    fail<ConfigError>("the secret's file '{}' may be read or written by others (mode {:03o}); chmod 600 '{}'", path,
                      static_cast<unsigned>(status.st_mode & 0777), path);
  }
  std::string text(kLargestFileBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail<ConfigError>("the secret's file '{}' cannot be read: {}", path, reason(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kLargestFileBytes) {
    fail<ConfigError>("the secret's file '{}' is larger than {} bytes: is it the right one? {}", path,
                      kLargestFileBytes, kHowToMakeOne);
  }
  text.resize(size);
  return text;
}

std::string to_hex(const Key& key) {
  std::string text;
  for (const std::byte b : key) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

std::optional<Key> key_from_hex(std::string_view text) {
  Key key{};
  if (text.size() != 2 * key.size()) return std::nullopt;
  for (std::size_t i = 0; i < key.size(); ++i) {
    unsigned value = 0;
    const char* digits = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(digits, digits + 2, value, 16);
    if (error != std::errc{} || end != digits + 2) return std::nullopt;
    key[i] = static_cast<std::byte>(value);
  }
  if (to_hex(key) != text) return std::nullopt;  // capital letters: a key is written in one way only
  return key;
}

}  // namespace slipstream
