// SPDX-License-Identifier: Apache-2.0
#include "strategy/contender.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace slipstream {

Contender Contender::parse(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  Contender made{text.substr(0, colon), {}};
  for (std::size_t at = colon + 1; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    made.set.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return made;
}

std::string Contender::text() const { return set.empty() ? name : fmt::format("{}:{}", name, fmt::join(set, ",")); }

}  // namespace slipstream
