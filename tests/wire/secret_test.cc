// SPDX-License-Identifier: Apache-2.0
#include "wire/secret.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

namespace slipstream {
namespace {

std::string hex(const Key& key) {
  std::string text;
  for (const std::byte b : key) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

template <typename Call>
std::string config_error_of(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

class SecretFile : public testing::Test {
 protected:
  SecretFile() {
    char name[] = "/tmp/slipstream_secret_XXXXXX";
    const int fd = mkstemp(name);
    close(fd);
    path_ = name;
  }
  ~SecretFile() override { std::filesystem::remove(path_); }

  void write(const std::string& text) { std::ofstream(path_) << text; }

  std::string path_;
};

TEST(Secret, RandomKeysDiffer) {
  std::set<Key> keys;
  for (int i = 0; i < 1000; ++i) keys.insert(random_key());
  EXPECT_EQ(keys.size(), 1000U);
}

// Both from another implementation (Python's hmac): HKDF-SHA256 by RFC 5869, and HMAC-SHA256. Every machine of a job,
// whatever it is, has to come to these.
TEST(Secret, TheKeyOfATextIsWhatAnotherImplementationComesTo) {
  EXPECT_EQ(hex(key_of("correct horse battery staple")),
            "e6f88bfef992c8ac40c8708952e8491b41b1e28a54934a631dd3f10598a76c10");
}

TEST(Secret, DerivedKeysAreWhatAnotherImplementationComesTo) {
  Key key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  const std::string context = "context";
  EXPECT_EQ(hex(derive(key, "purpose")), "7e16bef0902f89be1d6a9e57046a26edf959c06cc008dfec46aaa8077d9e3e11");
  EXPECT_EQ(hex(derive(key, "purpose", std::as_bytes(std::span(context)))),
            "9bd6fa4bda26bac9c62c023af8137a846a531b9ee9eb231a1ecddc8c57190fd5");
}

TEST(Secret, DerivedKeysDifferByKeyPurposeAndContext) {
  const Key key = key_of("0123456789abcdef");
  const std::string ab = "ab", b = "b";
  const std::set<Key> keys{key,
                           derive(key, "p"),
                           derive(key, "q"),
                           derive(derive(key, "p"), "p"),
                           derive(key, "p", std::as_bytes(std::span(ab))),
                           derive(key, "pa", std::as_bytes(std::span(b))),  // the border between the two counts
                           derive(key, "p", std::as_bytes(std::span(b)))};
  EXPECT_EQ(keys.size(), 7U);
}

TEST(Secret, WhiteSpaceAtTheEndDoesNotCountAndAnywhereElseItDoes) {
  const Key key = key_of("0123456789abcdef");
  for (const char* end : {"\n", "\r\n", " ", "\t \n\n"}) EXPECT_EQ(key_of(std::string("0123456789abcdef") + end), key);
  EXPECT_NE(key_of(" 0123456789abcdef"), key);
  EXPECT_NE(key_of("0123456789 abcdef"), key);
  EXPECT_NE(key_of("0123456789abcdeF"), key);
}

TEST(Secret, AShortOneIsRefusedAndTheMessageSaysHowToMakeOne) {
  for (const std::string text : {"", "   \n", "0123456789abcde", "0123456789abcde    \n"}) {
    const std::string error = config_error_of([&] { key_of(text); });
    EXPECT_NE(error.find("at least 16"), std::string::npos) << error;
    EXPECT_NE(error.find("head -c 32 /dev/urandom | base64 > FILE"), std::string::npos) << error;
  }
  EXPECT_NO_THROW(key_of("0123456789abcdef"));
}

TEST(Secret, SameComparesAllBytesAndTheSize) {
  const Key key = random_key();
  EXPECT_TRUE(same(key, key));
  EXPECT_TRUE(same({}, {}));
  EXPECT_FALSE(same(key, std::span(key).first(31)));
  for (std::size_t i = 0; i < key.size(); ++i) {
    Key other = key;
    other[i] ^= std::byte{0x80};
    EXPECT_FALSE(same(key, other)) << i;
  }
}

TEST_F(SecretFile, IsReadAsItIsWhereOnlyItsOwnerMayReadIt) {
  write("first line\nsecond line\n");
  for (const mode_t mode : {0600U, 0400U, 0700U}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    EXPECT_EQ(read_secret_file(path_), "first line\nsecond line\n");
  }
}

TEST_F(SecretFile, IsRefusedWhereOthersMayReadOrWriteIt) {
  write("0123456789abcdef");
  for (const mode_t mode : {0640U, 0604U, 0620U, 0602U, 0644U, 0660U, 0666U}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    const std::string error = config_error_of([&] { read_secret_file(path_); });
    EXPECT_NE(error.find("chmod 600 '" + path_ + "'"), std::string::npos) << error;
  }
}

TEST_F(SecretFile, IsRefusedWhereItIsTooLarge) {
  write(std::string(4096, 'x'));
  EXPECT_EQ(read_secret_file(path_).size(), 4096U);
  write(std::string(4097, 'x'));
  EXPECT_NE(config_error_of([&] { read_secret_file(path_); }).find("larger than 4096"), std::string::npos);
}

TEST_F(SecretFile, IsNamedWhereItIsMissingOrADirectory) {
  const std::string missing = path_ + ".missing";
  const std::string error = config_error_of([&] { read_secret_file(missing); });
  EXPECT_NE(error.find("'" + missing + "'"), std::string::npos) << error;
  EXPECT_NE(error.find("No such file"), std::string::npos) << error;
  EXPECT_NE(config_error_of([] { read_secret_file("/"); }).find("is a directory"), std::string::npos);
}

}  // namespace
}  // namespace slipstream
