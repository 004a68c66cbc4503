// SPDX-License-Identifier: Apache-2.0
//
// FixedChooser: tells `auto` what a test wants it to choose, and remembers what it was asked.
#pragma once

#include <slipstream/strategy/registry.h>

#include <string>
#include <vector>

#include "strategy/chooser.h"
#include "strategy/contender.h"

namespace slipstream::test {

class FixedChooser final : public Chooser {
 public:
  explicit FixedChooser(std::string strategy) : strategy_(std::move(strategy)) {}

  Choice choose(const JobProfile& profile, bool local) const override {
    asked.push_back({profile.workers, local, profile.dense_step_s, profile.compute_s});
    return {strategy_, "the test wants it"};
  }
  std::unique_ptr<Strategy> make(const std::string& strategy) const override {
    const Contender one = Contender::parse(strategy);
    return Registry::builtin().configure(one.name, one.set).make();
  }

  struct Asked {
    int workers;
    bool local;
    double dense_step_s;
    std::vector<double> compute_s;
  };
  mutable std::vector<Asked> asked;

 private:
  std::string strategy_;
};

}  // namespace slipstream::test
