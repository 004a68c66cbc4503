// SPDX-License-Identifier: Apache-2.0
//
// GridSpec: what is compared with what. Contenders (strategies, and peers that are not ours) × models × links × worker
// counts × seeds, and what must hold of the results. It comes from flags, or from a TOML file with several of them:
//
//   train = "--task fashion-mnist --steps 100"       # keys before the first [[grid]] hold for all grids;
//   seeds = [1, 2]                                   # `train` of a grid is added to this one
//   [[grid]]
//   name = "cnn"
//   strategies = ["ssgd", "lags", "gs:density=0.01"] # the first one is the reference
//   links = ["none", "100mbit,25ms"]
//   limit = 0.5                                      # how much worse than the reference each may be
//   claims = [{kind = "bytes", of = ["gs:density=0.01"], value = 0.125}]
//
// It does not say how a cell is run; grid.h makes the cells.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

// What must hold between contenders. `value` by kind:
//   "no worse"  of = [A, B]: A's mean result is no worse than B's, and A moves at most `value` times B's bytes
//   "bytes"     of = [A]: A moves at most `value` of a dense sum's bytes
//   "formula"   of = [A]: A moves `value` of a dense sum's bytes, within 2 %
//   "rising"    of = [A, B, …]: none is worse than the one before it by more than `value` (percent points, or loss)
struct Claim {
  std::string kind;
  std::vector<std::string> of;
  double value = 0;
};

struct GridSpec {
  std::string name = "grid", about;
  std::vector<std::string> train;              // flags of `slipstream train` that all contenders get
  std::vector<std::string> strategies, peers;  // NAME or NAME:KEY=VALUE,…; ddp, fp16, powersgd1@1000, …
  std::vector<std::string> models;             // empty: the task's default
  std::vector<std::string> links{"loopback"};  // or as --lab takes them
  std::vector<std::int64_t> workers{2}, seeds{1};
  std::int64_t repeats = 1;    // of the same seed: for times
  std::string reference_link;  // the reference runs on this link only, if its result is the same on all; empty: on each
  std::optional<double> target, limit;
  std::map<std::string, double> limits;  // by contender; take precedence over `limit`
  std::vector<Claim> claims;

  std::vector<std::string> contenders() const;  // strategies, then peers
  const std::string& reference() const;         // the first of them
  std::optional<double> limit_of(const std::string& contender) const;
  bool by_loss() const;  // text is judged by its loss, images by their accuracy

  // ConfigError unless everything fits together.
  void validate() const;
};

inline constexpr std::string_view kLoopback = "loopback";  // no lab: workers on this machine, no root needed

// All grids of a file. ConfigError names the file, the line and the nearest key.
std::vector<GridSpec> read_spec(const std::filesystem::path& file);

double parse_target(std::string_view text);  // "85%" is 0.85, "1.9" is 1.9

// Keeps the named strategies (with or without their options), the reference, and the claims that are about these alone.
// ConfigError for a name that does not exist.
void keep_strategies(GridSpec& grid, const std::vector<std::string>& names);

std::string strategy_name(const std::string& contender);  // "lags" of "lags:density=0.01"
std::vector<std::string> split_words(std::string_view text);

}  // namespace slipstream
