// SPDX-License-Identifier: Apache-2.0
#include "strategy/card.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <set>

#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;

constexpr std::string_view kPlain = R"(# plain: one line

## Paper

A. Author, A Title, A Venue 2020;
B. Author, Another

## Pseudo-code

```text
each step:
  (1) w <- w - g

  (2) wait
```

## Bytes per step

4 bytes × parameters

## Waits for

nobody,
ever

## Notes

- The first note,
  in two lines.
- The second.

## Source

- [plain.cc](../plain.cc)
- [plain_part.cc](../plain_part.cc)
)";

// kPlain with the first `from` replaced.
std::string with(std::string_view from, std::string_view to) {
  std::string text(kPlain);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_refused(const std::string& text, int line, std::string_view why) {
  expect_error<Error>(
      [&] {
        (void)parse_card({"plain", text});
      },
      {fmt::format("cards/plain.md:{}: ", line), std::string(why)});
}

TEST(Card, HasWhatThePageSays) {
  const Card card = parse_card({"plain", kPlain});
  EXPECT_EQ(card.name, "plain");
  EXPECT_EQ(card.title, "plain: one line");
  EXPECT_EQ(card.paper, "A. Author, A Title, A Venue 2020; B. Author, Another");
  EXPECT_EQ(card.pseudo_code, (std::vector<std::string>{"each step:", "  (1) w <- w - g", "", "  (2) wait"}));
  EXPECT_EQ(card.bytes_per_step, "4 bytes × parameters");
  EXPECT_EQ(card.waits_for, "nobody, ever");
  EXPECT_EQ(card.notes, (std::vector<std::string>{"The first note, in two lines.", "The second."}));
  EXPECT_EQ(card.sources, (std::vector<std::string>{"plain.cc", "plain_part.cc"}));
  EXPECT_EQ(card.pseudo_code_of, "");
}

TEST(Card, BecomesAnInfo) {
  const StrategyInfo info = info_of(parse_card({"plain", kPlain}));
  EXPECT_EQ(info.name, "plain");
  EXPECT_EQ(info.title, "plain: one line");
  EXPECT_EQ(info.paper, "A. Author, A Title, A Venue 2020; B. Author, Another");
  EXPECT_EQ(info.pseudo_code.size(), 4U);
  EXPECT_EQ(info.bytes_per_step, "4 bytes × parameters");
  EXPECT_EQ(info.waits_for, "nobody, ever");
  EXPECT_EQ(info.notes.size(), 2U);
}

TEST(Card, RefusesPartsThatAreMissingOrInAnotherOrder) {
  expect_refused("", 1, "the end of the file should be '# ' and the title");
  expect_refused(with("# plain", "plain"), 1, "'plain: one line' should be '# '");
  expect_refused(with("## Paper", "## Papers"), 3, "should be '## Paper'");
  expect_refused(with("## Waits for\n\nnobody,\never\n\n", ""), 21, "should be '## Waits for'");
  expect_refused(with("nobody,\never\n\n", ""), 23, "'## Notes' begins with '#'");
  expect_refused(with("## Source\n\n- [plain.cc](../plain.cc)\n- [plain_part.cc](../plain_part.cc)\n", ""), 32,
                 "the end of the file should be '## Source'");
  expect_refused(with("(../plain_part.cc)\n", "(../plain_part.cc)\n\nmore\n"), 36, "comes after the end");
}

TEST(Card, RefusesEmptyLinesThatAreMissingOrTooMany) {
  expect_refused(with("## Paper\n\n", "## Paper\n"), 4, "should be empty");
  expect_refused(with("## Paper\n\n", "## Paper\n\n\n"), 5, "should be text");
  expect_refused(with("parameters\n\n", "parameters\n\n\n"), 21, "should be '## Waits for'");
}

TEST(Card, RefusesABadBlockOfPseudoCode) {
  expect_refused(with("```text", "```"), 10, "should be '```text' or 'As in [NAME](NAME.md).'");
  expect_refused(with("(2) wait\n```", "(2) wait"), 35, "should be '```'");
  expect_refused(with("each step:\n  (1) w <- w - g\n\n  (2) wait\n", ""), 11, "before there is any");
}

TEST(Card, RefusesLinesThatMarkdownReadsOtherwise) {
  expect_refused(with("B. Author", "- B. Author"), 6, "begins with '- '");
  expect_refused(with("B. Author", "  B. Author"), 6, "begins with ' '");
  expect_refused(with("  in two", "in two"), 29, "neither with '- ' nor with two spaces");
  expect_refused(with("  in two", "  - in two"), 29, "begins with '- '");
  expect_refused(with("- The first note,\n  in two lines.\n- The second.\n", "None.\n"), 28, "should begin a list");
  expect_refused(with("nobody,", "nobody, "), 23, "ends with a space");
  expect_refused(with("nobody,", "\tnobody,"), 23, "has a tab");
}

TEST(Card, RefusesALinkThatLeadsElsewhere) {
  expect_refused(with("(../plain_part.cc)", "(../plain.cc)"), 35, "should be '- [FILE.cc](../FILE.cc)'");
  expect_refused(with("[plain.cc](../plain.cc)", "plain.cc"), 34, "should be '- [FILE.cc](../FILE.cc)'");
}

constexpr std::string_view kBlock = "```text\neach step:\n  (1) w <- w - g\n\n  (2) wait\n```\n";

TEST(Card, TakesThePseudoCodeOfAnother) {
  const std::string preset = with(kBlock, "As in [plain](plain.md).\n");
  const CardText cards[] = {{"plain", kPlain}, {"preset", preset}};
  const Card card = find_card("preset", cards);
  EXPECT_EQ(card.name, "preset");
  EXPECT_EQ(card.pseudo_code_of, "plain");
  EXPECT_EQ(card.pseudo_code, find_card("plain", cards).pseudo_code);
  EXPECT_FALSE(card.pseudo_code.empty());
}

TEST(Card, RefusesAReferenceThatHelpsNobody) {
  expect_refused(with(kBlock, "As in [other](plain.md).\n"), 10, "should be 'As in [NAME](NAME.md).'");
  expect_refused(with(kBlock, "As in plain.\n"), 10, "should be 'As in [NAME](NAME.md).'");
  const std::string preset = with(kBlock, "As in [other](other.md).\n");
  const std::string other = with(kBlock, "As in [preset](preset.md).\n");
  const CardText both[] = {{"preset", preset}, {"other", other}}, one[] = {{"preset", preset}};
  expect_error<Error>([&] { (void)find_card("preset", both); }, {"cards/preset.md", "other", "none of its own"});
  expect_error<Error>([&] { (void)find_card("preset", one); }, {"cards/preset.md", "other", "none of its own"});
}

TEST(Card, AStrategyWithoutACardIsAnError) {
  expect_error<Error>([] { (void)find_card("nonesuch"); }, {"nonesuch", "src/strategy/cards/nonesuch.md"});
}

TEST(Card, EveryStrategyHasOneAndEveryOneIsAStrategys) {
  std::set<std::string> cards, strategies;
  for (const CardText& card : card_texts()) cards.emplace(card.name);
  const Registry registry = Registry::builtin();
  for (const StrategyInfo& info : registry.all()) strategies.insert(info.name);
  EXPECT_EQ(cards, strategies);
}

}  // namespace
}  // namespace slipstream
