// SPDX-License-Identifier: Apache-2.0
#include "topology/sparse_gather.h"

#include <slipstream/base/error.h>

namespace slipstream {

void SparseGather::start(Fabric& net, const Sparse& entries, std::size_t dimension) {
  check(!gather_.active(), "a sparse gather was started before the last one was finished");
  const std::size_t bytes = sparse_payload::max_bytes(entries.indices.size(), dimension, format_);
  sparse_payload::encode(entries, static_cast<std::uint32_t>(dimension), format_, mine_);
  sparse_payload::pad_to(mine_, bytes);
  all_.resize(bytes * static_cast<std::size_t>(net.size()));
  gather_ = net.gather(mine_, all_);
}

void SparseGather::finish_adding(std::span<float> out, float scale) {
  gather_.wait();
  for (std::size_t at = 0; at < all_.size(); at += mine_.size()) {
    sparse_payload::add_to(std::span(all_).subspan(at, mine_.size()), out, scale);
  }
}

double SparseGather::bytes_sent(std::size_t count, std::size_t dimension, ValueFormat format, int ranks) {
  return static_cast<double>(sparse_payload::max_bytes(count, dimension, format)) * (ranks - 1);
}

}  // namespace slipstream
