// SPDX-License-Identifier: Apache-2.0
//
// CompressedSum: the mean over all ranks of vectors that are too long to be sent whole, in the background, with error
// feedback. Each rank hands over what it owes; what is sent leaves it, the rest stays owed.
//
//   topk     the k largest entries of each rank, gathered by all
//   half     everything, rounded to fp16; a rank owes what its own rounding took away
//   sketch   a table of 5 × 4 k cells is summed; from it all ranks find the same k entries of the sum, whose exact
//            values are then summed (the second, short sum cannot be hidden: it is taken in finish)
//
// k = density × elements. Invariant: the mean is the same bits on all ranks. What a rank was handed is what it sent
// plus what it still owes, up to rounding; half also loses what rounding the sum takes away (at most one part in 2048
// of it), which no rank can see and so none owes.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace slipstream {

class CompressedSum {
 public:
  virtual ~CompressedSum() = default;

  // Starts sending. What is sent is taken out of `owed`, by sketch only in finish. `number`: the same on all ranks, new
  // each time.
  virtual void start(Fabric& net, std::span<float> owed, std::int64_t number) = 0;
  virtual bool done() const = 0;
  // Waits; then, with m the mean over all ranks of what was sent: up <- up + m, down <- down - m.
  virtual void finish(std::span<float> owed, std::span<float> up, std::span<float> down) = 0;
};

struct CompressedSumOptions {
  std::string codec;  // topk, half, sketch
  double density = 0.01;

  std::unique_ptr<CompressedSum> make(std::size_t count) const;

  // Bytes each rank sends in start and in finish.
  double start_bytes(std::size_t count, int ranks) const;
  double finish_bytes(std::size_t count, int ranks) const;

 private:
  std::size_t entries(std::size_t count) const;
};

}  // namespace slipstream
