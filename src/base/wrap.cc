// SPDX-License-Identifier: Apache-2.0
#include "base/wrap.h"

#include <algorithm>

namespace slipstream {
namespace {

// Width on a terminal: UTF-8 continuation bytes take no column.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

std::string wrap(std::string_view text, std::size_t width, std::size_t indent) {
  const std::string break_line = "\n" + std::string(indent, ' ');
  std::string lines;
  std::size_t used = 0;
  bool first_word = true;  // of its line
  while (!text.empty()) {
    if (text.front() == '\n') {
      lines += break_line;
      text.remove_prefix(1);
      used = indent;
      first_word = true;
      continue;
    }
    // A word with the spaces before it: spaces at the beginning of a line are its indentation and stay.
    const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    std::string_view word = text.substr(0, end);
    if (!first_word && used + columns(word) > width) {
      lines += break_line;
      used = indent;
      word.remove_prefix(begin);
    }
    lines += word;
    used += columns(word);
    first_word = false;
    text.remove_prefix(end);
  }
  return lines;
}

}  // namespace slipstream
