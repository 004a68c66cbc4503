// SPDX-License-Identifier: Apache-2.0
//
// FlatModel: a model as two flat ranges of floats, weights and gradients, plus named slots (one per parameter tensor,
// in registration order, without gaps). It owns the memory; torch tensors are views of it. It knows nothing of torch.
//
// Bucket: a contiguous piece of the flat model, the unit of readiness and of sending. Buckets never cut a slot.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace slipstream {

// A parameter tensor, seen as a matrix of `rows` (its first dimension) × count / rows; a vector is one row.
struct Parameter {
  std::string name;
  std::size_t count = 0;  // may be 0
  std::size_t rows = 1;
};

struct Slot {
  std::string name;
  std::size_t offset = 0;
  std::size_t count = 0;
  std::size_t rows = 1;
};

struct Bucket {
  int index = 0;  // position in the plan: bucket 0 is ready first (the model's last layers)
  std::size_t offset = 0;
  std::size_t count = 0;
  std::size_t first_slot = 0;  // slots [first_slot, end_slot)
  std::size_t end_slot = 0;
};

class FlatModel {
 public:
  // `count` floats that are zero, at the start of a cache line.
  using Buffer = std::shared_ptr<float[]>;
  static Buffer allocate(std::size_t count);

  // In registration order. Weights and gradients start as zeros, in two buffers that `memory` makes.
  explicit FlatModel(const std::vector<Parameter>& parameters,
                     const std::function<Buffer(std::size_t)>& memory = allocate);

  std::size_t count() const { return count_; }
  std::span<float> weights() { return {weights_.get(), count_}; }
  std::span<float> grads() { return {grads_.get(), count_}; }
  std::span<float> weights(const Bucket& b) { return weights().subspan(b.offset, b.count); }
  std::span<float> grads(const Bucket& b) { return grads().subspan(b.offset, b.count); }
  const std::vector<Slot>& slots() const { return slots_; }

  // The slot that holds flat element `offset`.
  const Slot& slot_at(std::size_t offset) const;

 private:
  std::vector<Slot> slots_;
  std::size_t count_ = 0;
  Buffer weights_, grads_;
};

}  // namespace slipstream
