// SPDX-License-Identifier: Apache-2.0
//
// Agreement: what must be equal on all ranks of a job, compared before anything depends on it. Ranks that differ in an
// option would send messages of different sizes, hang or train nonsense; here they learn which option differs.
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

// Adds one fact for every option, in the order in which the options were described.
void add_options(Facts& facts, const OptionSet& options);

// A collective. Throws the same ConfigError on all ranks where any rank's facts differ from rank 0's: it names the
// first fact that differs, both values and both ranks. `remedy` says what to do.
void require_same(Fabric& net, const Facts& mine, const std::string& remedy);

}  // namespace slipstream
