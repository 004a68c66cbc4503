// SPDX-License-Identifier: Apache-2.0
#include "task/text.h"

#include <slipstream/base/error.h>

#include "task/file.h"

namespace slipstream {
namespace {

constexpr char32_t kCodePoints = 0x110000;

// Strict: no overlong forms, no surrogates, nothing above U+10FFFF.
std::vector<char32_t> decode(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};  // the first code point that needs this many more bytes
  std::vector<char32_t> out;
  out.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const std::uint8_t lead = bytes[at];
    if (lead < 0x80) {
      out.push_back(lead);
      ++at;
      continue;
    }
    const std::size_t more = (lead & 0xe0) == 0xc0 ? 1 : (lead & 0xf0) == 0xe0 ? 2 : (lead & 0xf8) == 0xf0 ? 3 : 0;
    char32_t code = lead & (0x3fu >> more);
    bool valid = more > 0 && at + more < bytes.size();
    for (std::size_t i = 1; valid && i <= more; ++i) {
      valid = (bytes[at + i] & 0xc0) == 0x80;
      code = code << 6 | (bytes[at + i] & 0x3f);
    }
    if (!valid || code < kLeast[more] || code >= kCodePoints || (code >= 0xd800 && code < 0xe000)) {
      fail<DataError>("{}: at byte {} ({:#04x}), not valid UTF-8; convert the file, for example with iconv -t UTF-8",
                      path.string(), at, lead);
    }
    out.push_back(code);
    at += 1 + more;
  }
  return out;
}

}  // namespace

std::string to_utf8(std::span<const char32_t> text) {
  std::string bytes;
  for (const char32_t code : text) {
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr unsigned kLead[] = {0, 0xc0, 0xe0, 0xf0};
    bytes.push_back(static_cast<char>(kLead[more] | code >> (6 * more)));
    for (int i = more - 1; i >= 0; --i) bytes.push_back(static_cast<char>(0x80 | (code >> (6 * i) & 0x3f)));
  }
  return bytes;
}

std::int64_t least_characters(std::int64_t context) { return 10 * (context + 1); }

TextCorpus read_text(const std::filesystem::path& path, std::int64_t context) {
  check(context >= 1, "a context of {} characters", context);
  const std::vector<char32_t> text = decode(path, read_whole_file(path));
  const auto count = static_cast<std::int64_t>(text.size());
  if (count < least_characters(context)) {
    fail<DataError>(
        "{}: too short: it ends after {} characters, a context of {} needs at least {} (a tenth is kept for "
        "validation); use a longer text or a smaller context",
        path.string(), count, context, least_characters(context));
  }
  std::vector<std::int32_t> token_of(kCodePoints, -1);
  for (const char32_t code : text) token_of[code] = 0;
  TextCorpus corpus;
  for (char32_t code = 0; code < kCodePoints; ++code) {
    if (token_of[code] < 0) continue;
    token_of[code] = static_cast<std::int32_t>(corpus.vocabulary.size());
    corpus.vocabulary.push_back(code);
  }
  if (corpus.vocabulary.size() > kMostSymbols) {
    fail<DataError>("{}: {} different characters from byte 0 to its end, the most are {}; use another text",
                    path.string(), corpus.vocabulary.size(), kMostSymbols);
  }
  const std::int64_t train = count - count / 10;
  for (std::int64_t i = 0; i < count; ++i) {
    (i < train ? corpus.train : corpus.validation).push_back(token_of[text[static_cast<std::size_t>(i)]]);
  }
  return corpus;
}

}  // namespace slipstream
