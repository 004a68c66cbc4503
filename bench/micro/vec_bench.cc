// SPDX-License-Identifier: Apache-2.0
//
// vec_bench: what the kernels of base/vec.h reach, next to memcpy. Correctness is the unit tests' part.
#include <cstdint>

#include "base/hash.h"
#include "base/vec.h"
#include "micro/harness.h"

namespace slipstream {
namespace {

using bench::kFloats;

struct Buffers {  // written once here, so that no page is touched for the first time inside a measurement
  std::vector<float> w = std::vector<float>(kFloats, 0.5F), g = std::vector<float>(kFloats, 0.25F),
                     v = std::vector<float>(kFloats, 0.125F), u = std::vector<float>(kFloats, 0.125F);
  std::vector<std::uint16_t> half = std::vector<std::uint16_t>(kFloats, 0x3C00);
};

std::vector<bench::Operation> kernels(Buffers& b) {
  const vec::AdamStep adam{
      .rate = 1e-6F, .beta1 = 0.9F, .one_minus_beta1 = 0.1F, .beta2 = 0.999F, .one_minus_beta2 = 0.001F, .eps = 1e-8F};
  struct Kernel {
    const char* name;
    std::size_t bytes_per_float;  // read and written
    std::function<void()> run;
  };
  const std::vector<Kernel> all = {
      {"fill", 4, [&] { vec::fill(b.w, 0.5F); }},
      {"copy", 8, [&] { vec::copy(b.w, b.g); }},
      {"scale", 8, [&] { vec::scale(b.w, -1.0F); }},
      {"add", 12, [&] { vec::add(b.w, b.g); }},
      {"add_scaled", 12, [&] { vec::add_scaled(b.w, b.g, 0.1F); }},
      {"lerp", 12, [&] { vec::lerp(b.w, b.g, 0.6F); }},
      {"mix", 12, [&] { vec::mix(b.w, 0.25F, b.g, 0.375F); }},
      {"copy_twice", 12, [&] { vec::copy_twice(b.v, b.u, b.w); }},
      {"rebase", 16, [&] { vec::rebase(b.w, b.v, b.g, 0.5F); }},
      {"subtract", 12, [&] { vec::subtract(b.v, b.w, b.g); }},
      {"sgd", 12, [&] { vec::sgd_step(b.w, b.g, {}, {.lr = 1e-6F}); }},
      {"sgd momentum", 20, [&] { vec::sgd_step(b.w, b.g, b.v, {.lr = 1e-6F, .momentum = 0.9F}); }},
      {"sgd nesterov", 20, [&] { vec::sgd_step(b.w, b.g, b.v, {.lr = 1e-6F, .momentum = 0.9F, .nesterov = true}); }},
      {"adam", 28, [&b, adam] { vec::adam_step(b.w, b.g, b.v, b.u, adam); }},
      {"sum_of_squares", 4, [&] { benchmark::DoNotOptimize(vec::sum_of_squares(b.g)); }},
      {"first_nonfinite", 4, [&] { benchmark::DoNotOptimize(vec::first_nonfinite(b.g)); }},
      {"to_fp16", 6, [&] { vec::to_fp16(b.half, b.g); }},
      {"from_fp16", 6, [&] { vec::from_fp16(b.w, b.half); }},
      {"add_scaled_fp16", 10, [&] { vec::add_scaled_fp16(b.w, b.half, 0.1F); }},
      {"to_bf16", 6, [&] { vec::to_bf16(b.half, b.g); }},
      {"from_bf16", 6, [&] { vec::from_bf16(b.w, b.half); }},
      {"add_scaled_bf16", 10, [&] { vec::add_scaled_bf16(b.w, b.half, 0.1F); }},
      {"hash_bytes", 4, [&] { benchmark::DoNotOptimize(hash_bytes(std::as_bytes(std::span<const float>(b.g)))); }},
  };
  std::vector<bench::Operation> operations;
  for (const Kernel& kernel : all) {
    operations.push_back({kernel.name, kernel.bytes_per_float * bench::kFloats, kernel.run});
  }
  return operations;
}

}  // namespace
}  // namespace slipstream

int main(int argc, char** argv) { return slipstream::bench::run(argc, argv, slipstream::kernels); }
