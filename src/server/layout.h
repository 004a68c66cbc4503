// SPDX-License-Identifier: Apache-2.0
//
// ServerLayout: how a server's whole state lies in one message (kReadState, kWriteState), so that both sides find
// things in it:
//
//   for every field    the floats of all the server's parts, one part after the other: weights, then the optimizer's
//   for every part     its integers: the optimizer's, then the server's own counters
#pragma once

#include <slipstream/optim/optimizer.h>

#include <string>
#include <vector>

namespace slipstream {

inline constexpr const char* kServerCounters = "counters";  // how a checkpoint names a server's integers

struct ServerLayout {
  static constexpr std::size_t kFloatsOfInteger = sizeof(std::int64_t) / sizeof(float);

  std::vector<std::string> fields{"weights"};
  std::vector<std::string> integers;  // of the optimizer

  explicit ServerLayout(const OptimizerOptions& options) {
    struct Names final : StateVisitor {
      ServerLayout& layout;
      explicit Names(ServerLayout& l) : layout(l) {}
      void floats(std::string_view name, std::span<float>) override { layout.fields.emplace_back(name); }
      void integer(std::string_view name, std::int64_t&) override { layout.integers.emplace_back(name); }
    } names(*this);
    OptimizerOptions one = options;
    one.groups.clear();
    make_optimizer(one, 1, OptimizerUse::kSteps, {})->visit(names);
  }
};

}  // namespace slipstream
