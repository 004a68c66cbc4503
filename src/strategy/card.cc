// SPDX-License-Identifier: Apache-2.0
#include "strategy/card.h"

#include <slipstream/base/error.h>

#include <utility>

namespace slipstream {
namespace {

// Walks over a card's lines. Every function takes the part it is named after, or fails.
class Reader {
 public:
  explicit Reader(const CardText& card) : name_(card.name) {
    for (std::string_view rest = card.text; !rest.empty();) {
      const std::size_t end = rest.find('\n');
      lines_.push_back(rest.substr(0, end));
      rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
    }
    for (; at_ < lines_.size(); ++at_) {
      const std::string_view line = lines_[at_];
      if (line.find_first_of("\t\r") != line.npos) refuse("has a tab or a carriage return; use spaces and \\n");
      if (line.ends_with(' ')) refuse("ends with a space; remove it");
    }
    at_ = 0;
  }

  std::string title() {
    if (!line().starts_with("# ")) refuse("should be '# ' and the title");
    return std::string(take().substr(2));
  }

  void heading(std::string_view heading) {
    empty_line();
    if (line() != fmt::format("## {}", heading)) refuse(fmt::format("should be '## {}'", heading));
    take();
    empty_line();
  }

  std::string paragraph() {
    if (line().empty()) refuse("should be text");
    std::string text;
    while (!line().empty()) add_to(text, take_text());
    return text;
  }

  std::vector<std::string> list() {
    std::vector<std::string> items;
    while (line().starts_with("- ")) {
      lines_[at_].remove_prefix(2);
      std::string item(take_text());
      while (line().starts_with("  ")) {
        lines_[at_].remove_prefix(2);
        add_to(item, take_text());
      }
      items.push_back(std::move(item));
    }
    if (items.empty()) refuse("should begin a list: '- ' and text");
    if (!line().empty()) refuse("is in a list, but begins neither with '- ' nor with two spaces");
    return items;
  }

  std::vector<std::string> code() {
    if (line() != "```text") refuse("should be '```text' or 'As in [NAME](NAME.md).'");
    take();
    std::vector<std::string> lines;
    while (line() != "```") {
      if (at_ == lines_.size()) refuse("should be '```', the end of the pseudo-code");
      lines.emplace_back(take());
    }
    if (lines.empty()) refuse("ends the pseudo-code before there is any");
    take();
    return lines;
  }

  // NAME of "As in [NAME](NAME.md)."; empty, and nothing taken, where the line begins otherwise.
  std::string reference() {
    if (!line().starts_with("As in ")) return {};
    const std::string name = linked(line().substr(0, line().size() - 1).substr(6));
    if (line() != fmt::format("As in [{0}]({0}.md).", name)) refuse("should be 'As in [NAME](NAME.md).'");
    take();
    return name;
  }

  std::vector<std::string> files() {
    const std::size_t first = at_;
    std::vector<std::string> files = list();
    for (std::size_t i = 0; i < files.size(); ++i) {
      const std::string file = linked(files[i]);
      if (files[i] != fmt::format("[{0}](../{0})", file)) {
        at_ = first + i;
        refuse("should be '- [FILE.cc](../FILE.cc)'");
      }
      files[i] = file;
    }
    return files;
  }

  void end() {
    if (at_ != lines_.size()) refuse("comes after the end: Source is the last part");
  }

 private:
  // Empty past the end.
  std::string_view line() const { return at_ < lines_.size() ? lines_[at_] : std::string_view(); }
  std::string_view take() { return lines_[at_++]; }

  void empty_line() {
    if (at_ == lines_.size() || !line().empty()) refuse("should be empty");
    take();
  }

  // A line that Markdown, too, takes for the continuation of a text.
  std::string_view take_text() {
    for (const char* opening : {"#", "```", "- ", "+ ", "* ", ">", " "}) {
      if (line().starts_with(opening))
        refuse(fmt::format("begins with '{}', not with text; wrap it elsewhere", opening));
    }
    if (line().empty()) refuse("should be text");
    return take();
  }

  static void add_to(std::string& text, std::string_view line) {
    if (!text.empty()) text += ' ';
    text += line;
  }

  // X of "[X](…"; anything where there is no such link: the caller compares the whole.
  static std::string linked(std::string_view link) {
    return std::string(link.substr(0, link.find(']')).substr(link.starts_with('[') ? 1 : 0));
  }

  [[noreturn]] void refuse(std::string_view why) const {
    fail<Error>("src/strategy/cards/{}.md:{}: {} {}", name_, at_ + 1,
                at_ < lines_.size() ? fmt::format("'{}'", lines_[at_]) : "the end of the file", why);
  }

  std::string_view name_;
  std::vector<std::string_view> lines_;
  std::size_t at_ = 0;
};

const CardText* text_of(std::string_view name, std::span<const CardText> cards) {
  for (const CardText& card : cards) {
    if (card.name == name) return &card;
  }
  return nullptr;
}

}  // namespace

Card parse_card(const CardText& text) {
  Reader reader(text);
  Card card;
  card.name = text.name;
  card.title = reader.title();
  reader.heading("Paper");
  card.paper = reader.paragraph();
  reader.heading("Pseudo-code");
  card.pseudo_code_of = reader.reference();
  if (card.pseudo_code_of.empty()) card.pseudo_code = reader.code();
  reader.heading("Bytes per step");
  card.bytes_per_step = reader.paragraph();
  reader.heading("Waits for");
  card.waits_for = reader.paragraph();
  reader.heading("Notes");
  card.notes = reader.list();
  reader.heading("Source");
  card.sources = reader.files();
  reader.end();
  return card;
}

Card find_card(std::string_view name, std::span<const CardText> cards) {
  const CardText* text = text_of(name, cards);
  if (text == nullptr) fail<Error>("strategy {0} has no card; write src/strategy/cards/{0}.md", name);
  Card card = parse_card(*text);
  if (card.pseudo_code_of.empty()) return card;

  const CardText* other = text_of(card.pseudo_code_of, cards);
  if (other != nullptr) card.pseudo_code = parse_card(*other).pseudo_code;
  if (card.pseudo_code.empty()) {
    fail<Error>(
        "src/strategy/cards/{}.md: its pseudo-code should be that of {}, which has none of its own; name the "
        "card that has it",
        name, card.pseudo_code_of);
  }
  return card;
}

StrategyInfo info_of(Card card) {
  return {.name = std::move(card.name),
          .title = std::move(card.title),
          .paper = std::move(card.paper),
          .pseudo_code = std::move(card.pseudo_code),
          .bytes_per_step = std::move(card.bytes_per_step),
          .waits_for = std::move(card.waits_for),
          .notes = std::move(card.notes),
          .configure = {}};
}

}  // namespace slipstream
