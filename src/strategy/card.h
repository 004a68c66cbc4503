// SPDX-License-Identifier: Apache-2.0
//
// Card: what a strategy tells people, as a page of Markdown in src/strategy/cards/NAME.md. The pages are compiled in;
// `list` and `explain` print what they say. A card has these parts, in this order, with one empty line between them:
//
//   # one line that says what it is
//   ## Paper             a paragraph
//   ## Pseudo-code       a fenced block with lines (1) … (n); or "As in [NAME](NAME.md).", where another card has it
//   ## Bytes per step    a paragraph
//   ## Waits for         a paragraph
//   ## Notes             a list
//   ## Source            a list of links to the files whose line ends carry (1) … (n)
//
// Lines of a paragraph or a list item are joined by spaces. Whatever else stands in a card is an error that names card
// and line.
#pragma once

#include <slipstream/strategy/registry.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

struct CardText {
  std::string_view name;  // the file's, without .md
  std::string_view text;
};

struct Card {
  std::string name;
  std::string title;
  std::string paper;
  std::string pseudo_code_of;            // the card that has the pseudo-code; empty: this one
  std::vector<std::string> pseudo_code;  // empty: the other card's
  std::string bytes_per_step;
  std::string waits_for;
  std::vector<std::string> notes;
  std::vector<std::string> sources;  // file names in src/strategy
};

std::span<const CardText> card_texts();  // the compiled-in ones, by name; cmake/embed_cards.cmake defines it
Card parse_card(const CardText& card);
// The card of strategy `name`, its pseudo-code filled in.
Card find_card(std::string_view name, std::span<const CardText> cards = card_texts());
StrategyInfo info_of(Card card);  // all of it but `configure`

// What the registry holds of strategy class S, whose card is `name`.
template <typename S>
StrategyInfo card_info(const std::string& name) {
  StrategyInfo info = info_of(find_card(name));
  info.configure = [name] { return configure_strategy<S>(name); };
  return info;
}

}  // namespace slipstream
