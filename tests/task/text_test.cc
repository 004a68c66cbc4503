// SPDX-License-Identifier: Apache-2.0
#include "task/text.h"

#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;
using test::TempDir;

std::string repeated(const std::string& piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

TEST(Text, TokensAreRanksOfCodePoints) {
  const TempDir dir;
  // One, two, three and four bytes; ten times, so that the last tenth is one round.
  const TextCorpus corpus = read_text(dir.write("t", repeated("z\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\x8a", 10)), 3);
  EXPECT_EQ(corpus.vocabulary, (std::vector<char32_t>{U'z', U'\u00e9', U'\u20ac', U'\U0001f30a'}));
  ASSERT_EQ(corpus.train.size(), 36u);
  EXPECT_EQ(corpus.validation, (std::vector<std::int32_t>{0, 1, 2, 3}));
}

TEST(Text, SplitsNineToOneInOrder) {
  const TempDir dir;
  const TextCorpus corpus = read_text(dir.write("t", repeated("a", 95) + repeated("b", 14)), 4);
  EXPECT_EQ(corpus.train.size(), 99u);
  EXPECT_EQ(corpus.validation.size(), 10u);
  EXPECT_EQ(corpus.train[94], 0);
  EXPECT_EQ(corpus.train[95], 1);
}

TEST(Text, InvalidUtf8IsAnErrorWithTheOffset) {
  const std::string bad[] = {
      "\x80",              // a continuation without a lead
      "\xc3(",             // a lead without its continuation
      "\xe2\x82",          // cut at the end of the file
      "\xc0\xaf",          // overlong
      "\xe0\x80\xaf",      // overlong
      "\xed\xa0\x80",      // a surrogate
      "\xf4\x90\x80\x80",  // above U+10FFFF
      "\xff",
  };
  const TempDir dir;
  for (const std::string& piece : bad) {
    const auto path = dir.write("t", repeated("\xc3\xa9", 100) + piece);
    expect_error<DataError>([&] { read_text(path, 4); }, {"at byte 200", "UTF-8"});
  }
}

TEST(Text, TheEndsOfEveryUtf8LengthAreValid) {
  const TempDir dir;
  const std::string ends(
      "\x01\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
  const TextCorpus corpus = read_text(dir.write("t", repeated(ends, 10)), 4);
  EXPECT_EQ(corpus.vocabulary,
            (std::vector<char32_t>{0x1, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff}));
}

TEST(Text, TooShortSaysHowManyCharactersAreNeeded) {
  const TempDir dir;
  expect_error<DataError>([&] { read_text(dir.write("t", "abc"), 64); }, {"3 characters", "context of 64", "650"});
  expect_error<DataError>([&] { read_text(dir.write("t", ""), 1); }, {"0 characters", "20"});
}

TEST(Text, TheNumberItAsksForIsEnoughAndNotOneLess) {
  const TempDir dir;
  for (std::int64_t context = 1; context < 40; ++context) {
    const auto least = static_cast<std::size_t>(least_characters(context));
    const TextCorpus corpus = read_text(dir.write("t", std::string(least, 'x')), context);
    EXPECT_GE(corpus.validation.size(), static_cast<std::size_t>(context + 1));
    EXPECT_GE(corpus.train.size(), static_cast<std::size_t>(2 * context));  // a window at any offset
    EXPECT_THROW(read_text(dir.write("t", std::string(least - 1, 'x')), context), DataError);
  }
}

TEST(Text, TooManySymbolsAreAnError) {
  const TempDir dir;
  std::string text;  // all of U+10000 … U+1FFFF
  const auto append = [&](std::uint32_t code) {
    for (const std::uint32_t byte :
         {0xf0 | code >> 18, 0x80 | (code >> 12 & 0x3f), 0x80 | (code >> 6 & 0x3f), 0x80 | (code & 0x3f)}) {
      text.push_back(static_cast<char>(byte));
    }
  };
  for (std::uint32_t code = 0x10000; code < 0x20000; ++code) append(code);
  EXPECT_EQ(read_text(dir.write("t", text), 4).vocabulary.size(), kMostSymbols);
  append(0x20000);
  expect_error<DataError>([&] { read_text(dir.write("t", text), 4); }, {"65537 different characters", "65536"});
}

}  // namespace
}  // namespace slipstream
