// SPDX-License-Identifier: Apache-2.0
//
// The ways a registered strategy can be configured that are worth trying, found from its own description of its
// options: a new strategy is covered by being registered, with nothing to edit here.
#pragma once

#include <fmt/ranges.h>
#include <slipstream/base/error.h>
#include <slipstream/strategy/registry.h>

#include <algorithm>
#include <cctype>
#include <ostream>
#include <string>
#include <vector>

namespace slipstream::test {

struct Variant {
  std::string strategy;
  std::vector<std::string> set;  // "key=value"

  StrategyInfo::Configured configure() const { return Registry::builtin().configure(strategy, set); }

  Variant with(const std::string& key_equals_value) const {
    Variant more = *this;
    more.set.push_back(key_equals_value);
    return more;
  }

  // False where the strategy refuses the combination, with a reason, at construction.
  bool legal() const {
    try {
      configure().make();
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  }

  std::string name() const { return fmt::format("{}{}{}", strategy, set.empty() ? "" : " ", fmt::join(set, " ")); }
};

inline void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name(); }

inline std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + separator.size()) {
    parts.push_back(text.substr(begin, end - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// "key=value" for values of an option that differ from its default: all of a choice, small numbers, and both ends of a
// range where only speed is at stake (elsewhere an end may mean a gigabyte). Values it does not take are left out.
inline std::vector<std::string> other_values(const Option& option) {
  std::vector<std::string> values;
  if (option.kind.find('|') != std::string::npos) values = split(option.kind, "|");
  if (option.kind == "auto|integer") values = {"auto", "0", "1", "3"};
  if (option.kind == "integer") values = {"0", "1", "3"};
  if (option.kind == "number") values = {"0", "0.00001", "0.00003", "0.25", "0.5", "1", "3"};
  const auto ends = split(option.allowed, " … ");
  if (ends.size() == 2 && option.changes == Changes::kSpeed) values.insert(values.end(), ends.begin(), ends.end());
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::erase_if(values, [&option](const std::string& value) {
    try {
      option.set(value);  // it belongs to a configuration that nobody uses for anything else
      return option.get() == option.default_value;
    } catch (const ConfigError&) {
      return true;
    }
  });
  for (std::string& value : values) value = option.name + "=" + value;
  return values;
}

// The jobs of the tests are short: after a default warm-up nothing would be left of them.
inline constexpr const char* kShortWarmup = "warmup_steps=4";

// Every strategy: as it is by default, with every value of every choice, and with one other small number for each of its
// integers, where it takes one. A choice must work with the defaults of all else, but for a warm-up.
inline std::vector<Variant> variants() {
  const Registry registry = Registry::builtin();
  std::vector<Variant> all;
  for (const StrategyInfo& info : registry.all()) {
    Variant plain{info.name, {}};
    all.push_back(plain);
    const auto configured = info.configure();
    if (plain.with(kShortWarmup).legal()) {
      plain = plain.with(kShortWarmup);
      all.push_back(plain);
    }
    for (const Option& option : configured.options.all()) {
      if (option.changes != Changes::kResult) continue;
      const bool choice = option.kind.find('|') != std::string::npos;
      auto pairs = other_values(option);
      if (!choice) std::reverse(pairs.begin(), pairs.end());  // 3 before 1 and 0
      for (const std::string& pair : pairs) {
        if (!choice && (option.kind != "integer" || !plain.with(pair).legal())) continue;
        all.push_back(plain.with(pair));
        if (!choice) break;
      }
    }
  }
  return all;
}

}  // namespace slipstream::test
