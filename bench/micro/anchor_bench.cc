// SPDX-License-Identifier: Apache-2.0
//
// anchor_bench: what a late average costs the training thread: taking the snapshot and merging the answer. The memcpy
// beside each copies the model once. Every merge is compared once with the formula.
#include "correction/anchor.h"
#include "micro/harness.h"

namespace slipstream {
namespace {

using bench::kFloats;

constexpr int kRanks = 4;
constexpr float kKeep = 0.25F;

bool merges_right(bool additive) {
  std::vector<float> w = {3.0F};
  Anchor anchor(1, 0, additive);
  anchor.snapshot(w, {});
  anchor.message()[0] = 10.0F;  // the sum
  w[0] = 5.0F;
  additive ? anchor.merge_additive(w, kRanks) : anchor.merge_lerp(w, kKeep, kRanks);
  return w[0] == (additive ? 5.0F - 3.0F + 10.0F / kRanks : kKeep * 5.0F + (1 - kKeep) / kRanks * 10.0F);
}

struct Models {
  std::vector<float> w = std::vector<float>(kFloats, 0.5F);
  Anchor lerp{kFloats, 0, false}, additive{kFloats, 0, true};
};

std::vector<bench::Operation> operations(Models& m) {
  constexpr std::size_t kCopy = 2 * kFloats * sizeof(float);
  return {
      {"snapshot, lerp", kCopy, [&] { m.lerp.snapshot(m.w, {}); }},
      {"merge, lerp", kCopy, [&] { m.lerp.merge_lerp(m.w, kKeep, kRanks); }, {}, [] { return merges_right(false); }},
      {"snapshot, additive", kCopy, [&] { m.additive.snapshot(m.w, {}); }},
      {"merge, additive",
       kCopy,
       [&] { m.additive.merge_additive(m.w, kRanks); },
       {},
       [] { return merges_right(true); }},
  };
}

}  // namespace
}  // namespace slipstream

int main(int argc, char** argv) { return slipstream::bench::run(argc, argv, slipstream::operations); }
