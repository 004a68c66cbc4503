// SPDX-License-Identifier: Apache-2.0
#include "topology/sparse_tree.h"

#include "topology/tree.h"

namespace slipstream {
void SparseTree::reduce(Fabric& net, Sparse& entries, std::size_t dimension, Sparse& dropped) {
  const Tree tree(net.rank(), net.size());
  const std::size_t bytes = sparse_payload::max_bytes(entries.indices.size(), dimension, format_);
  const auto width = static_cast<std::uint32_t>(dimension);
  dropped.indices.clear();
  dropped.values.clear();
  for (const int child : tree.children()) {
    record_.resize(bytes);
    net.recv(child, kTreeMergeTag, record_).wait();
    merge(entries, sparse_payload::decode(record_, width), dropped);
  }
  sparse_payload::encode(entries, width, format_, record_);
  drop_rounding(entries, dropped);
  sparse_payload::pad_to(record_, bytes);
  if (!tree.is_root()) net.send(tree.parent(), kTreeMergeTag, record_).wait();
  tree_broadcast(net, record_);
  entries = sparse_payload::decode(record_, width);
}

void SparseTree::drop_rounding(const Sparse& entries, Sparse& dropped) {
  if (format_ == ValueFormat::kFp32) return;
  std::vector<float> arrives = entries.values;
  round_as_sent(arrives, format_);
  for (std::size_t j = 0; j < arrives.size(); ++j) {
    dropped.indices.push_back(entries.indices[j]);
    dropped.values.push_back(entries.values[j] - arrives[j]);
  }
}

// Both lists ascend: their union does, and the k largest of it keep that order.
void SparseTree::merge(Sparse& entries, const Sparse& more, Sparse& dropped) {
  both_.indices.clear();
  both_.values.clear();
  const auto append = [](Sparse& to, std::uint32_t index, float value) {
    to.indices.push_back(index);
    to.values.push_back(value);
  };
  std::size_t a = 0, b = 0;
  while (a < entries.indices.size() || b < more.indices.size()) {
    const bool no_more = b == more.indices.size();
    if (no_more || (a < entries.indices.size() && entries.indices[a] < more.indices[b])) {
      append(both_, entries.indices[a], entries.values[a]);
      ++a;
    } else if (a == entries.indices.size() || more.indices[b] < entries.indices[a]) {
      append(both_, more.indices[b], more.values[b]);
      ++b;
    } else {
      append(both_, entries.indices[a], entries.values[a] + more.values[b]);
      ++a, ++b;
    }
  }
  select_.pick(both_.values, entries.indices.size(), largest_);
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i < both_.indices.size(); ++i) {
    if (kept < largest_.indices.size() && largest_.indices[kept] == i) {
      entries.indices[kept] = both_.indices[i];
      entries.values[kept++] = both_.values[i];
    } else {
      append(dropped, both_.indices[i], both_.values[i]);
    }
  }
}

double SparseTree::bytes_sent(std::size_t k, std::size_t dimension, ValueFormat format, int rank, int size) {
  const std::size_t bytes = sparse_payload::max_bytes(k, dimension, format);
  return static_cast<double>(Tree(rank, size).messages() * bytes);
}

}  // namespace slipstream
