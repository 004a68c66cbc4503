// SPDX-License-Identifier: Apache-2.0
#include "base/wrap.h"

#include <gtest/gtest.h>

namespace slipstream {
namespace {

TEST(Wrap, BreaksAtSpacesBeforeTheWidthIsPassed) {
  EXPECT_EQ(wrap("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrap("one two three", 6), "one\ntwo\nthree");
  EXPECT_EQ(wrap("one two three", 80), "one two three");
  EXPECT_EQ(wrap("", 10), "");
}

TEST(Wrap, IndentsWhatFollowsTheFirstLine) { EXPECT_EQ(wrap("- one two", 6, 2), "- one\n  two"); }

TEST(Wrap, KeepsLineBreaksAndTheIndentationOfTheFirstWord) { EXPECT_EQ(wrap("  a\n  b", 80), "  a\n  b"); }

TEST(Wrap, LongWordsStayWhole) { EXPECT_EQ(wrap("a verylongword b", 6), "a\nverylongword\nb"); }

TEST(Wrap, CountsCharactersNotBytes) { EXPECT_EQ(wrap("äöü äöü", 7), "äöü äöü"); }

}  // namespace
}  // namespace slipstream
