// SPDX-License-Identifier: Apache-2.0
//
// vec: arithmetic on spans of floats. Every function is one pass over memory with the widest vectors the processor has,
// chosen at run time. The result never depends on that choice: no fused multiply-add, sums in a fixed order, so that
// replicas on different processors stay bit-identical (only the payload of a NaN may differ).
//
// Spans need no alignment; their sizes must agree (checked). Outputs may be the same span as an input, but must not
// partly overlap one. Nothing here allocates or starts threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace slipstream::vec {

void fill(std::span<float> y, float value);
void zero(std::span<float> y);
void copy(std::span<float> y, std::span<const float> x);                                  // y = x
void scale(std::span<float> y, float a);                                                  // y = a y
void add(std::span<float> y, std::span<const float> x);                                   // y = y + x
void add_scaled(std::span<float> y, std::span<const float> x, float a);                   // y = y + a x
void lerp(std::span<float> y, std::span<const float> x, float a);                         // y = a y + (1-a) x
void mix(std::span<float> y, float a, std::span<const float> x, float b);                 // y = a y + b x
void subtract(std::span<float> out, std::span<const float> a, std::span<const float> b);  // out = a - b
void copy_twice(std::span<float> y, std::span<float> z, std::span<const float> x);        // y = z = x
// y = (y - from) + a to: what was added to `from` is added to the scaled `to` instead.
void rebase(std::span<float> y, std::span<const float> from, std::span<const float> to, float a);

// Sum of a_i b_i in double. Element i goes to partial sum i mod 16, and the sixteen are added pairwise: the same bits
// for every vector width. The products themselves are exact.
double dot(std::span<const float> a, std::span<const float> b);
double sum_of_squares(std::span<const float> x);

// Sum of |x_i y_i| in double, in the same order; the products themselves are exact.
double sum_abs_products(std::span<const float> x, std::span<const float> y);

// The index of the first infinity or NaN, x.size() where all are finite.
std::size_t first_nonfinite(std::span<const float> x);

// One optimizer step, with g' = scale g + weight_decay w:
//   v = momentum v + g';   w = w - lr (nesterov ? g' + momentum v : v)
// With momentum 0 there is no v (an empty span): w = w - lr g'.
struct SgdStep {
  float lr = 0;
  float momentum = 0;
  float weight_decay = 0;
  float scale = 1;
  bool nesterov = false;
};
void sgd_step(std::span<float> w, std::span<const float> g, std::span<float> v, const SgdStep& step);

// One Adam step, with g' = scale g + l2_decay w:
//   m = beta1 m + (1-beta1) g';   u = beta2 u + (1-beta2) g'^2;   w = keep w - rate m / (sqrt(u) / root_correction2 +
//   eps)
// The caller computes in double what depends on the step number.
struct AdamStep {
  float rate = 0;  // lr / (1 - beta1^t)
  float beta1 = 0, one_minus_beta1 = 0;
  float beta2 = 0, one_minus_beta2 = 0;
  float root_correction2 = 1;  // sqrt(1 - beta2^t)
  float eps = 0;
  float l2_decay = 0;  // adam's weight decay
  float keep = 1;      // adamw's: 1 - lr weight_decay
  float scale = 1;
};
void adam_step(std::span<float> w, std::span<const float> g, std::span<float> m, std::span<float> u,
               const AdamStep& step);

// What a worker's own gradient becomes under Adam without a first moment, in place:
//   u = beta2 u + (1-beta2) g^2;   g = g / (sqrt(u) / root_correction2 + eps)
struct AdamDirection {
  float beta2 = 0, one_minus_beta2 = 0;
  float root_correction2 = 1;
  float eps = 0;
};
void adam_direction(std::span<float> g, std::span<float> u, const AdamDirection& step);

// 16-bit floats, as their bits. Rounds to nearest, ties to even; a NaN stays a NaN (made quiet), too large values
// become infinities.
void to_fp16(std::span<std::uint16_t> out, std::span<const float> x);
void to_bf16(std::span<std::uint16_t> out, std::span<const float> x);
void from_fp16(std::span<float> out, std::span<const std::uint16_t> x);
void from_bf16(std::span<float> out, std::span<const std::uint16_t> x);
void add_scaled_fp16(std::span<float> y, std::span<const std::uint16_t> x, float a);  // y = y + a x
void add_scaled_bf16(std::span<float> y, std::span<const std::uint16_t> x, float a);

}  // namespace slipstream::vec
