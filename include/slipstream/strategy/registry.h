// SPDX-License-Identifier: Apache-2.0
//
// Registry: the available strategies, with what `list` and `explain` print about them. A strategy of this library is
// registered by its card (src/strategy/cards/NAME.md) and one line in Registry::builtin(), one from outside by
// Registry::add.
#pragma once

#include <slipstream/base/option.h>
#include <slipstream/strategy/strategy.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace slipstream {

// "How many bytes does worker `rank` send in step t?" The conformance suite compares the answer with the meter.
struct TrafficQuery {
  const FlatModel& model;
  int workers;
  std::int64_t t;
  int rank = 0;
  int servers = 0;  // processes that only serve; 0: every worker's process holds a shard
};

struct StrategyInfo {
  std::string name;                      // as on the command line
  std::string title;                     // one line
  std::string paper;                     // citation
  std::vector<std::string> pseudo_code;  // numbered lines; the source repeats the numbers at line ends
  std::string bytes_per_step;            // the formula, for people
  std::string waits_for;                 // what the worker waits for, for people
  std::vector<std::string> notes;        // deviations from the paper, limits, advice

  // A configured instance of the strategy: its options (still to be set) and the way to build it from them.
  struct Configured {
    std::shared_ptr<void> owner;  // keeps the option struct alive
    OptionSet options;
    std::function<std::unique_ptr<Strategy>()> make;        // throws ConfigError for illegal combinations
    std::function<double(const TrafficQuery&)> bytes_sent;  // exact, unless it follows the clock
    // Do measured times decide what is sent and when (an adaptive plan)? Ranks still agree, but two runs may differ.
    std::function<bool()> follows_clock;
  };
  std::function<Configured()> configure;
};

// Ties a strategy class to an info. The class has `Options`, a constructor from it, `static double bytes_sent(options,
// query)` and, if it can follow the clock, `static bool follows_clock(options)`. `preset` holds the defaults of this
// name, where one class has several names.
template <typename S>
StrategyInfo::Configured configure_strategy(const std::string& name, const typename S::Options& preset = {}) {
  auto options = std::make_shared<typename S::Options>(preset);
  OptionSet set("strategy " + name);
  options->describe(set);
  return {options, std::move(set), [options] { return std::make_unique<S>(*options); },
          [options](const TrafficQuery& q) { return S::bytes_sent(*options, q); },
          [options] {
            if constexpr (requires { S::follows_clock(*options); }) return S::follows_clock(*options);
            return false;
          }};
}

class Registry {
 public:
  // All strategies of this library.
  static Registry builtin();

  void add(StrategyInfo info);
  const StrategyInfo& find(std::string_view name) const;  // throws ConfigError with the nearest name
  // The strategy `name` with its options set from "key=value" pairs.
  StrategyInfo::Configured configure(std::string_view name, const std::vector<std::string>& set) const;
  const std::vector<StrategyInfo>& all() const& { return infos_; }
  const std::vector<StrategyInfo>& all() && = delete;  // would dangle in a range-for

 private:
  std::vector<StrategyInfo> infos_;
};

}  // namespace slipstream
