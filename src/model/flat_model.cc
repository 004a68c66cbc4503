// SPDX-License-Identifier: Apache-2.0
#include <slipstream/base/error.h>
#include <slipstream/model/flat_model.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace slipstream {

FlatModel::Buffer FlatModel::allocate(std::size_t count) {
  constexpr std::size_t kLine = 64;
  const std::size_t bytes = (count * sizeof(float) + kLine) / kLine * kLine;  // never 0
  auto* p = static_cast<float*>(std::aligned_alloc(kLine, bytes));
  if (p == nullptr) fail<Error>("out of memory: a model of {} parameters needs {} bytes", count, bytes);
  std::memset(p, 0, bytes);
  return {p, [](float* memory) { std::free(memory); }};
}

FlatModel::FlatModel(const std::vector<Parameter>& parameters, const std::function<Buffer(std::size_t)>& memory) {
  slots_.reserve(parameters.size());
  for (const Parameter& p : parameters) {
    check(p.rows > 0 && p.count % p.rows == 0, "'{}' has {} elements in {} rows", p.name, p.count, p.rows);
    slots_.push_back({p.name, count_, p.count, p.rows});
    count_ += p.count;
  }
  weights_ = memory(count_);
  grads_ = memory(count_);
}

const Slot& FlatModel::slot_at(std::size_t offset) const {
  check(offset < count_, "element {} is outside the model's {} parameters", offset, count_);
  const auto after = std::upper_bound(slots_.begin(), slots_.end(), offset,
                                      [](std::size_t at, const Slot& slot) { return at < slot.offset; });
  return *std::prev(after);  // the last slot that starts at or before offset; not an empty one, since those end there
}

}  // namespace slipstream
