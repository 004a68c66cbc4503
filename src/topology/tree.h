// SPDX-License-Identifier: Apache-2.0
//
// The binomial tree over the ranks of a job, rooted at rank 0, for any number of ranks, and what travels along it.
//
//   the tree of 8:   0 ── 4 ── 6 ── 7        a rank's parent is the rank without its lowest set bit;
//                    │    └─ 5               its children are the rank with one bit set below that one
//                    ├─ 2 ── 3
//                    └─ 1
//
// A sum goes up and comes back down: every rank adds its children's sums to its own, the nearest child first, and rank
// 0's result is copied to all. So the order of the additions is fixed and the result bit-identical on all ranks. A rank
// sends the data once to each of its neighbours, at most ceil(log2 P) of them; rank 0 has that many.
//
// Sums travel in pieces: while one goes up, the one before it comes down, so that a full-duplex wire is used both ways;
// two ranks send to each other at once. All functions block. All ranks call them in the same order, with the same
// sizes.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstddef>
#include <span>
#include <vector>

namespace slipstream {

class Tree {
 public:
  Tree(int rank, int size);

  bool is_root() const { return parent_ < 0; }
  int parent() const { return parent_; }                          // -1 at the root
  const std::vector<int>& children() const { return children_; }  // nearest first: the order in which they are added

  // How often this rank sends the data when it goes up and comes back down.
  std::size_t messages() const { return children_.size() + (is_root() ? 0 : 1); }

 private:
  int parent_;
  std::vector<int> children_;
};

class TreeSum {
 public:
  // values = sum over ranks, in place.
  void sum(Fabric& net, std::span<float> values);

  // Bytes `rank` of `size` sends in a sum of `count` floats.
  static double bytes_sent(std::size_t count, int rank, int size);

 private:
  std::vector<float> arrived_;  // scratch: what the children sent, one child after the other
};

// Copies rank 0's bytes to all ranks.
void tree_broadcast(Fabric& net, std::span<std::byte> bytes);

// For other data that goes up a tree, so that its messages are not taken for those of a sum or a broadcast.
inline constexpr Tag kTreeMergeTag = 0x54;

}  // namespace slipstream
