// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <slipstream/base/error.h>
#include <slipstream/base/option.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace slipstream {
namespace {

template <typename T>
T parse_number(std::string_view owner, std::string_view name, std::string_view text, Range<T> range, const char* kind) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    fail<ConfigError>("{}: {} takes {}, not '{}'", owner, name, kind, text);
  }
  if (!(value >= range.min && value <= range.max)) {
    fail<ConfigError>("{}: {} = {} is out of range; it goes from {} to {}", owner, name, text, range.min, range.max);
  }
  return value;
}

template <typename T>
std::string range_text(Range<T> range) {
  const bool below = range.min == std::numeric_limits<T>::lowest();
  const bool above = range.max == std::numeric_limits<T>::max();
  if (below && above) return "";
  if (above) return fmt::format("at least {}", range.min);
  if (below) return fmt::format("at most {}", range.max);
  return fmt::format("{} … {}", range.min, range.max);
}

std::string join(const std::vector<std::string>& words, std::string_view glue) {
  return fmt::format("{}", fmt::join(words, glue));
}

}  // namespace

void OptionSet::add(Option option) {
  for (const Option& other : options_) {
    check(other.name != option.name, "{}: option {} is described twice", owner_, option.name);
  }
  option.default_value = option.get();
  options_.push_back(std::move(option));
}

void OptionSet::integer(std::string name, std::int64_t& value, Range<std::int64_t> range, Changes changes,
                        std::string help) {
  add({name, "integer", range_text(range), "", std::move(help), changes,
       [this_owner = owner_, name, &value, range](std::string_view text) {
         value = parse_number(this_owner, name, text, range, "a whole number");
       },
       [&value] { return std::to_string(value); }});
}

template <typename Number>
void OptionSet::number_or_auto(std::string name, std::optional<Number>& value, Range<Number> range, Changes changes,
                               std::string help, const char* kind, const char* expected) {
  add({name, kind, "auto, " + range_text(range), "", std::move(help), changes,
       [this_owner = owner_, name, &value, range, expected](std::string_view text) {
         if (text == "auto") {
           value.reset();
         } else {
           value = parse_number(this_owner, name, text, range, expected);
         }
       },
       [&value] { return value ? fmt::format("{}", *value) : "auto"; }});
}

void OptionSet::integer_or_auto(std::string name, std::optional<std::int64_t>& value, Range<std::int64_t> range,
                                Changes changes, std::string help) {
  number_or_auto(std::move(name), value, range, changes, std::move(help), "auto|integer", "auto or a whole number");
}

void OptionSet::real_or_auto(std::string name, std::optional<double>& value, Range<double> range, Changes changes,
                             std::string help) {
  number_or_auto(std::move(name), value, range, changes, std::move(help), "auto|number", "auto or a number");
}

void OptionSet::real(std::string name, double& value, Range<double> range, Changes changes, std::string help) {
  add({name, "number", range_text(range), "", std::move(help), changes,
       [this_owner = owner_, name, &value, range](std::string_view text) {
         value = parse_number(this_owner, name, text, range, "a number");
       },
       [&value] { return fmt::format("{}", value); }});
}

void OptionSet::boolean(std::string name, bool& value, Changes changes, std::string help) {
  add({name, "true|false", "true or false", "", std::move(help), changes,
       [this_owner = owner_, name, &value](std::string_view text) {
         if (text != "true" && text != "false") {
           fail<ConfigError>("{}: {} takes true or false, not '{}'", this_owner, name, text);
         }
         value = text == "true";
       },
       [&value] { return std::string(value ? "true" : "false"); }});
}

void OptionSet::choice(std::string name, std::string& value, std::vector<std::string> allowed, Changes changes,
                       std::string help) {
  const std::string kind = join(allowed, "|");
  add({name, kind, join(allowed, ", "), "", std::move(help), changes,
       [this_owner = owner_, name, &value, allowed = std::move(allowed)](std::string_view text) {
         if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
           const std::string near = nearest(text, allowed);
           fail<ConfigError>("{}: {} takes one of {}; not '{}'{}", this_owner, name, join(allowed, ", "), text,
                             near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
         }
         value = text;
       },
       [&value] { return value; }});
}

void OptionSet::text(std::string name, std::string& value, Changes changes, std::string help) {
  add({std::move(name), "text", "", "", std::move(help), changes, [&value](std::string_view text) { value = text; },
       [&value] { return value; }});
}

void OptionSet::set(std::string_view name, std::string_view value) {
  std::vector<std::string> names;
  for (Option& option : options_) {
    if (option.name == name) return option.set(value);
    names.push_back(option.name);
  }
  if (names.empty()) fail<ConfigError>("{} has no options, so '{}' cannot be set", owner_, name);
  const std::string near = nearest(name, names);
  fail<ConfigError>(
      "{} has no option '{}'; {}", owner_, name,
      near.empty() ? fmt::format("it has {}", join(names, ", ")) : fmt::format("did you mean '{}'?", near));
}

void OptionSet::set_pair(std::string_view key_equals_value) {
  const auto at = key_equals_value.find('=');
  if (at == std::string_view::npos || at == 0) {
    fail<ConfigError>("{}: '{}' should read key=value", owner_, key_equals_value);
  }
  set(key_equals_value.substr(0, at), key_equals_value.substr(at + 1));
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 2) + 1;
  for (const std::string& candidate : known) {
    std::vector<std::size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = std::exchange(row[0], i);
      for (std::size_t j = 1; j <= candidate.size(); ++j) {
        const std::size_t replaced = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace slipstream
