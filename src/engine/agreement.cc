// SPDX-License-Identifier: Apache-2.0
#include "engine/agreement.h"

#include <slipstream/base/error.h>

#include <algorithm>

#include "topology/gather_text.h"

namespace slipstream {
namespace {

// On the wire every name and every value ends with a zero byte.
std::string packed(const Facts& facts) {
  std::string text;
  for (const Fact& fact : facts) text.append(fact.name).append(1, '\0').append(fact.value).append(1, '\0');
  return text;
}

Facts unpacked(const std::string& text) {
  Facts facts;
  const auto word = [&text](std::size_t& at) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    std::string found = text.substr(at, end - at);
    at = end + 1;
    return found;
  };
  for (std::size_t at = 0; at < text.size();) {
    std::string name = word(at);
    std::string value = at < text.size() ? word(at) : "";
    facts.push_back({std::move(name), std::move(value)});
  }
  return facts;
}

std::string told(const Facts& facts, std::size_t i) {
  return i < facts.size() ? fmt::format("{}={}", facts[i].name, facts[i].value) : "nothing more";
}

}  // namespace

void add_options(Facts& facts, const OptionSet& options) {
  for (const Option& option : options.all()) facts.push_back({option.name, option.get()});
}

void require_same(Fabric& net, const Facts& mine, const std::string& remedy) {
  const auto texts = gather_text(net, packed(mine));
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    const Facts first = unpacked(texts[0]), other = unpacked(texts[r]);
    std::size_t i = 0;
    while (i < first.size() && i < other.size() && first[i] == other[i]) ++i;
    fail<ConfigError>("the ranks were given different options: rank 0 has {}, rank {} {}; {}", told(first, i), r,
                      told(other, i), remedy);
  }
}

}  // namespace slipstream
