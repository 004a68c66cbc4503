// SPDX-License-Identifier: Apache-2.0
//
// OptionSet: the named, typed, documented options of something. A struct of options describes itself once,
//
//   struct LocalSgdOptions {
//     std::int64_t period = 4;
//     void describe(OptionSet& o) { o.integer("period", period, {1, 1'000'000}, kChangesResult, "steps between
//     averages"); }
//   };
//
// and from that come the parser (`--set period=8`, TOML), the range checks, the error that names the nearest valid key,
// the help and the resolved configuration. The set refers to the struct's fields: it must not outlive them.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

// What an option may change. Speed-only options leave the trained weights bit-identical (the conformance suite checks).
enum class Changes { kResult, kSpeed };
inline constexpr Changes kChangesResult = Changes::kResult;
inline constexpr Changes kChangesSpeed = Changes::kSpeed;

template <typename T>
struct Range {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
};

struct Option {
  std::string name;
  std::string kind;           // "integer", "auto|integer", "number", "true|false", "a|b|c", "text"
  std::string allowed;        // for people: "1 … 1000000"; empty where anything goes
  std::string default_value;  // as it would be written on the command line
  std::string help;
  Changes changes = Changes::kResult;
  std::function<void(std::string_view)> set;  // throws ConfigError naming the option
  std::function<std::string()> get;
};

class OptionSet {
 public:
  explicit OptionSet(std::string owner) : owner_(std::move(owner)) {}

  void integer(std::string name, std::int64_t& value, Range<std::int64_t> range, Changes changes, std::string help);
  // "auto" is the empty value.
  void integer_or_auto(std::string name, std::optional<std::int64_t>& value, Range<std::int64_t> range, Changes changes,
                       std::string help);
  void real_or_auto(std::string name, std::optional<double>& value, Range<double> range, Changes changes,
                    std::string help);
  void real(std::string name, double& value, Range<double> range, Changes changes, std::string help);
  void boolean(std::string name, bool& value, Changes changes, std::string help);
  void choice(std::string name, std::string& value, std::vector<std::string> allowed, Changes changes,
              std::string help);
  void text(std::string name, std::string& value, Changes changes, std::string help);

  // Sets one option from text. Unknown names throw ConfigError with the nearest known one.
  void set(std::string_view name, std::string_view value);
  void set_pair(std::string_view key_equals_value);  // "period=8"

  const std::vector<Option>& all() const { return options_; }
  const std::string& owner() const { return owner_; }

 private:
  template <typename Number>
  void number_or_auto(std::string name, std::optional<Number>& value, Range<Number> range, Changes changes,
                      std::string help, const char* kind, const char* expected);
  void add(Option option);

  std::string owner_;  // for messages: "strategy local"
  std::vector<Option> options_;
};

// The entry of `known` with the smallest edit distance to `word`, or "" where none is near (more than half differs).
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace slipstream
