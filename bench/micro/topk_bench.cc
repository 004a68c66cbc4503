// SPDX-License-Identifier: Apache-2.0
//
// topk_bench: what TopK and the sparse payload reach, next to memcpy and to the same selection by torch. The bytes of a
// selection are those of one pass over the vector; those of a payload are its own, in and out. Every selection by TopK
// is compared once with the selection by a full sort of the same values. accumulate_and_take adds a gradient besides;
// torch's rows do not. "torch topk" takes the largest values, "torch abs topk" the largest magnitudes, as TopK does.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/rng.h"
#include "codec/sparse_payload.h"
#include "codec/topk.h"
#include "micro/harness.h"

namespace slipstream {
namespace {

using bench::kFloats;
using bench::Operation;

constexpr float kScale = 0.5F;

struct Buffers {
  std::vector<float> residual = std::vector<float>(kFloats), grad = std::vector<float>(kFloats);
  TopK topk;
  Sparse taken;
  std::vector<std::byte> payload;

  Buffers() {
    Rng rng(1);
    for (float& x : grad) x = static_cast<float>(rng.normal());
    std::reverse_copy(grad.begin(), grad.end(), residual.begin());
  }

  void select(std::size_t k) { topk.accumulate_and_take(residual, grad, kScale, k, taken); }

  // One checked selection. The residual goes on from there, as in training.
  bool selects_exactly(std::size_t k) {
    std::vector<float> accumulated(kFloats);
    for (std::size_t i = 0; i < kFloats; ++i) accumulated[i] = residual[i] + kScale * grad[i];
    select(k);
    return taken == topk_reference(accumulated, k);
  }

  // Makes the payload that the operations on payloads work with.
  bool encodes_right(std::size_t k) {
    using namespace sparse_payload;
    topk.pick(grad, k, taken);
    encode(taken, kFloats, ValueFormat::kFp32, payload);
    return decode(payload, kFloats) == taken;
  }
};

void add_operations(Buffers& b, std::size_t k, std::vector<Operation>& all) {
  using namespace sparse_payload;
  const std::string share = fmt::format(" {} %", 100.0 * static_cast<double>(k) / kFloats);
  const at::Tensor grad = at::from_blob(b.grad.data(), {kFloats}, at::kFloat);
  const auto torch_topk = [k](const at::Tensor& x) {
    benchmark::DoNotOptimize(at::topk(x, static_cast<std::int64_t>(k), 0, true, false));
  };
  const std::string plain = "torch topk" + share, magnitudes = "torch abs topk" + share;
  all.push_back({plain, 4 * kFloats, [=] { torch_topk(grad); }, {}, {}, 3});
  all.push_back({magnitudes, 4 * kFloats, [=] { torch_topk(grad.abs()); }, {}, {}, 3});

  const auto selects = [&b, k] { return b.selects_exactly(k); };
  all.push_back({"accumulate_and_take" + share, 12 * kFloats, [&b, k] { b.select(k); }, {plain, magnitudes}, selects});
  all.push_back({"pick" + share, 4 * kFloats, [&b, k] { b.topk.pick(b.residual, k, b.taken); }, {plain, magnitudes}});

  b.encodes_right(k);
  const std::size_t bytes = 8 * k + b.payload.size();
  const auto encodes = [&b, k] { return b.encodes_right(k); };
  all.push_back(
      {"encode" + share, bytes, [&b] { encode(b.taken, kFloats, ValueFormat::kFp32, b.payload); }, {}, encodes});
  all.push_back({"decode" + share, bytes, [&b] { benchmark::DoNotOptimize(decode(b.payload, kFloats)); }, {}, encodes});
  all.push_back({"add_to" + share, bytes, [&b] { add_to(b.payload, b.residual, 1e-6F); }, {}, encodes});
}

std::vector<Operation> operations(Buffers& b) {
  std::vector<Operation> all;
  for (const std::size_t k : {kFloats / 1000, kFloats / 100}) add_operations(b, k, all);
  return all;
}

}  // namespace
}  // namespace slipstream

int main(int argc, char** argv) {
  at::set_num_threads(1);
  return slipstream::bench::run(argc, argv, slipstream::operations);
}
