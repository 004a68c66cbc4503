// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <slipstream/base/error.h>
#include <slipstream/base/option.h>

#include <string>

namespace slipstream {
namespace {

struct Sample {
  std::int64_t period = 4;
  double rate = 0.5;
  bool fast = false;
  std::string wire = "fp32";
  std::string title = "untitled";

  void describe(OptionSet& o) {
    o.integer("period", period, {1, 100}, kChangesResult, "steps between averages");
    o.real("rate", rate, {0.0, 1.0}, kChangesResult, "share kept");
    o.boolean("fast", fast, kChangesSpeed, "skip the checks");
    o.choice("wire", wire, {"fp32", "fp16", "bf16"}, kChangesResult, "format on the wire");
    o.text("title", title, kChangesSpeed, "for the report");
  }
};

class Options : public testing::Test {
 protected:
  Options() { sample_.describe(set_); }

  // The ConfigError's text that setting name to value gives; empty where it gives none.
  std::string refusal(std::string_view name, std::string_view value) {
    try {
      set_.set(name, value);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  Sample sample_;
  OptionSet set_{"strategy sample"};
};

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST_F(Options, SetWritesTheFieldOfEachKind) {
  set_.set("period", "8");
  set_.set("rate", "1e-3");
  set_.set("fast", "true");
  set_.set("wire", "bf16");
  set_.set("title", "a = b");
  EXPECT_EQ(sample_.period, 8);
  EXPECT_EQ(sample_.rate, 1e-3);
  EXPECT_TRUE(sample_.fast);
  EXPECT_EQ(sample_.wire, "bf16");
  EXPECT_EQ(sample_.title, "a = b");
}

TEST_F(Options, TheBoundsOfARangeAreAllowedAndWhatLiesBeyondIsNot) {
  EXPECT_EQ(refusal("period", "1"), "");
  EXPECT_EQ(refusal("period", "100"), "");
  EXPECT_EQ(refusal("rate", "1"), "");
  EXPECT_EQ(sample_.period, 100);
  for (const char* bad : {"0", "101", "-5"}) {
    const std::string text = refusal("period", bad);
    EXPECT_TRUE(contains(text, "strategy sample") && contains(text, "period") && contains(text, "from 1 to 100"))
        << text;
  }
  EXPECT_TRUE(contains(refusal("rate", "1.001"), "out of range"));
  EXPECT_TRUE(contains(refusal("rate", "nan"), "out of range"));
  EXPECT_TRUE(contains(refusal("rate", "inf"), "out of range"));
  EXPECT_EQ(sample_.period, 100) << "a refused value changes nothing";
}

TEST_F(Options, NumbersMustBeNumbersToTheLastCharacter) {
  for (const char* bad : {"", "x", "8x", "8.5", " 8", "99999999999999999999"}) {
    EXPECT_TRUE(contains(refusal("period", bad), "period takes a whole number")) << bad;
  }
  for (const char* bad : {"", "0.5s", "half"}) EXPECT_TRUE(contains(refusal("rate", bad), "takes a number")) << bad;
}

TEST(OptionSet, AutoStandsForNoNumber) {
  std::optional<std::int64_t> delay = 3;
  OptionSet set("strategy sample");
  set.integer_or_auto("delay", delay, {0, 10}, kChangesResult, "steps");
  EXPECT_EQ(set.all()[0].default_value, "3");
  set.set("delay", "auto");
  EXPECT_FALSE(delay.has_value());
  EXPECT_EQ(set.all()[0].get(), "auto");
  set.set("delay", "0");
  EXPECT_EQ(delay, 0);
  for (const char* bad : {"11", "-1", "automatic", ""}) EXPECT_THROW(set.set("delay", bad), ConfigError) << bad;
  EXPECT_EQ(delay, 0);
}

TEST_F(Options, ABooleanIsTrueOrFalseOnly) {
  set_.set("fast", "true");
  set_.set("fast", "false");
  EXPECT_FALSE(sample_.fast);
  for (const char* bad : {"1", "yes", "True", ""}) EXPECT_TRUE(contains(refusal("fast", bad), "true or false")) << bad;
}

TEST_F(Options, AnUnknownChoiceListsAllAndNamesTheNearest) {
  const std::string text = refusal("wire", "fp61");
  EXPECT_TRUE(contains(text, "fp32, fp16, bf16")) << text;
  EXPECT_TRUE(contains(text, "did you mean fp")) << text;
  EXPECT_EQ(sample_.wire, "fp32");
}

TEST_F(Options, AnUnknownNameIsAnsweredWithTheNearestOne) {
  EXPECT_TRUE(contains(refusal("peroid", "8"), "did you mean 'period'?"));
  EXPECT_TRUE(contains(refusal("rat", "8"), "did you mean 'rate'?"));
}

TEST_F(Options, ANameFarFromAllIsAnsweredWithTheList) {
  EXPECT_TRUE(contains(refusal("zzzzzzzz", "8"), "it has period, rate, fast, wire, title"));
}

TEST(OptionSet, WithoutOptionsSaysSo) {
  OptionSet none("strategy bare");
  EXPECT_THROW(none.set("period", "1"), ConfigError);
}

TEST_F(Options, SetPairSplitsAtTheFirstEqualsSign) {
  set_.set_pair("period=9");
  set_.set_pair("title=a=b");
  set_.set_pair("title=");
  EXPECT_EQ(sample_.period, 9);
  EXPECT_EQ(sample_.title, "");
  EXPECT_THROW(set_.set_pair("period"), ConfigError);
  EXPECT_THROW(set_.set_pair("=9"), ConfigError);
}

TEST_F(Options, DescribeKeepsOrderDefaultsRangesAndWhatTheyChange) {
  const auto& all = set_.all();
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[0].name, "period");
  EXPECT_EQ(all[0].default_value, "4");
  EXPECT_EQ(all[0].allowed, "1 … 100");
  EXPECT_EQ(all[0].changes, Changes::kResult);
  EXPECT_EQ(all[2].default_value, "false");
  EXPECT_EQ(all[2].changes, Changes::kSpeed);
  EXPECT_EQ(all[3].kind, "fp32|fp16|bf16");
}

TEST_F(Options, GetGivesWhatSetWouldTake) {
  set_.set("rate", "0.1");
  set_.set("fast", "true");
  const std::string rate = set_.all()[1].get();
  EXPECT_EQ(rate, "0.1");
  for (const Option& option : set_.all()) EXPECT_EQ(refusal(option.name, option.get()), "") << option.name;
  EXPECT_EQ(set_.all()[1].default_value, "0.5") << "the default is what it was at first";
}

TEST(OptionSet, DescribingANameTwiceIsABug) {
  Sample sample;
  OptionSet set("twice");
  sample.describe(set);
  EXPECT_THROW(sample.describe(set), Error);
}

TEST(Nearest, CountsInsertedDeletedAndReplacedLetters) {
  const std::vector<std::string> known = {"adam", "adamw", "sgd"};
  EXPECT_EQ(nearest("adams", known), "adam");
  EXPECT_EQ(nearest("adaw", known), "adam");
  EXPECT_EQ(nearest("sdg", {"sgd"}), "");
  EXPECT_EQ(nearest("sgdd", known), "sgd");
  EXPECT_EQ(nearest("lion", {}), "");
}

}  // namespace
}  // namespace slipstream
