// SPDX-License-Identifier: Apache-2.0
//
// TopK: the k entries of largest magnitude, exactly. Of equal magnitudes the lower index wins, so the selection is a
// function of the values alone: the same on every processor, whatever was selected before.
//
// One pass over memory does nearly all the work: it adds the gradient to the residual, compares with a threshold and
// writes the few entries above it to a list. The threshold comes from a sample and decides only how long that list is:
//   - too many candidates: the list is cut back to its k largest when it is full, and the pass goes on with the k-th of
//     them as the new threshold (an entry below it can no longer be among the k);
//   - too few: a second, read-only pass without a threshold, which finds its own by the rule above.
// The k are then selected among the candidates.
//
// Invariant: what is taken out and what stays are disjoint and nothing is computed in between, so sent + residual is
// the accumulated value bit for bit. Magnitudes are compared as bits: denormals count, an infinity is larger than
// every number, a NaN larger still. Gradients should be finite all the same; the caller looks before it adds.
//
// An object holds scratch memory only (about 36 bytes per entry taken), no state that a checkpoint would need. Not for
// two threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "codec/sparse.h"

namespace slipstream {

// The entries that passed the threshold so far, in ascending order of their index.
struct Candidates {
  std::vector<std::uint32_t> indices;  // `capacity` long, of which `count` are in use
  std::vector<float> values;
  std::size_t count = 0;
  std::size_t capacity = 0;
  std::int32_t floor = 0;  // an entry is a candidate if its magnitude's bits are above this; -1 lets all in
};

class TopK {
 public:
  // residual = residual + scale * grad; then the k largest move to `out` and are 0 in the residual.
  void accumulate_and_take(std::span<float> residual, std::span<const float> grad, float scale, std::size_t k,
                           Sparse& out);

  // The same without adding: the k largest move to `out` and are 0 in `values`.
  void take(std::span<float> values, std::size_t k, Sparse& out);

  // The k largest are copied to `out`; `values` stay as they are.
  void pick(std::span<const float> values, std::size_t k, Sparse& out);

  // The same for `size` values that are in no memory: write(first, out) computes those from `first` on, for an `out` of
  // any length; `first` is a multiple of 16. Some are computed more than once.
  void pick(std::size_t size, std::size_t k, const std::function<void(std::size_t first, std::span<float> out)>& write,
            Sparse& out);

 private:
  template <typename Pass>
  void scan(std::size_t size, std::size_t k, const Pass& pass);
  template <typename WriteLine>
  std::int32_t sampled_floor(std::size_t size, std::size_t k, const WriteLine& write);
  void keep_largest(std::size_t k);
  template <typename Pass>
  void move_out(std::size_t size, std::size_t k, const Pass& read, Sparse& out);

  Candidates list_;
  std::vector<std::int32_t> magnitudes_;  // of the sample or of the candidates, to find a rank among them
};

// The definition of the selection, by sorting everything: for the tests.
Sparse topk_reference(std::span<const float> values, std::size_t k);

}  // namespace slipstream
