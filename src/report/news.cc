// SPDX-License-Identifier: Apache-2.0
#include "report/news.h"

#include <algorithm>

namespace slipstream {
namespace {

// "head: [name: what] [name: what]"; has layers only if the whole text has that form.
NewsPiece piece_of(std::string_view text) {
  NewsPiece piece{std::string(text), {}};
  const std::size_t open = text.find(": [");
  if (open == std::string_view::npos || !text.ends_with(']')) return piece;
  std::vector<std::pair<std::string, std::string>> layers;
  for (std::string_view rest = text.substr(open + 2); !rest.empty();) {
    const std::size_t next = rest.find("] [");
    const std::string_view entry = rest.substr(1, (next == std::string_view::npos ? rest.size() - 1 : next) - 1);
    const std::size_t colon = entry.find(": ");
    if (colon == std::string_view::npos) return piece;
    layers.emplace_back(entry.substr(0, colon), entry.substr(colon + 2));
    rest = next == std::string_view::npos ? std::string_view() : rest.substr(next + 2);
  }
  return {std::string(text.substr(0, open)), std::move(layers)};
}

}  // namespace

std::vector<NewsPiece> take_apart(std::string_view news) {
  std::vector<NewsPiece> pieces;
  while (!news.empty()) {
    const std::size_t end = std::min(news.find("; "), news.size());
    pieces.push_back(piece_of(news.substr(0, end)));
    news.remove_prefix(std::min(end + 2, news.size()));
  }
  return pieces;
}

}  // namespace slipstream
