// SPDX-License-Identifier: Apache-2.0
//
// Agreement: what all ranks of a job must have been given alike, compared before anything depends on it. Ranks that
// differ in an option would send messages of different sizes, hang or train nonsense; here they learn which option it is.
#pragma once

#include <slipstream/base/option.h>
#include <slipstream/fabric/fabric.h>

#include <string>
#include <vector>

namespace slipstream {

struct Fact {
  std::string name, value;
  bool operator==(const Fact&) const = default;
};

using Facts = std::vector<Fact>;

// One fact for every option, in the order it was described.
void add_options(Facts& facts, const OptionSet& options);

// A collective. Throws on all ranks the same ConfigError where any rank's facts are not those of rank 0: it names the
// first fact in which they differ, both values and both ranks. `remedy` says what to do.
void require_same(Fabric& net, const Facts& mine, const std::string& remedy);

}  // namespace slipstream
