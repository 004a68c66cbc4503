// SPDX-License-Identifier: Apache-2.0
#include "topology/tree.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <ranges>

#include "base/vec.h"

namespace slipstream {
namespace {

constexpr Tag kUp = 0x55, kDown = 0x56;
constexpr std::size_t kPiece = 8192;  // floats: some milliseconds at 100 Mb/s, far above the cost of a message

std::size_t pieces_of(std::size_t count) { return (count + kPiece - 1) / kPiece; }

std::span<float> piece(std::span<float> values, std::size_t i) {
  return values.subspan(i * kPiece, std::min(kPiece, values.size() - i * kPiece));
}

}  // namespace

Tree::Tree(int rank, int size) : parent_(rank == 0 ? -1 : rank & (rank - 1)) {
  check(0 <= rank && rank < size, "Tree: rank {} of {}", rank, size);
  for (int bit = 1; rank + bit < size && (rank & bit) == 0; bit *= 2) children_.push_back(rank + bit);
}

void TreeSum::sum(Fabric& net, std::span<float> values) {
  if (net.size() == 2) {  // between two the order does not matter: both ways at once, one delay instead of two
    const int other = 1 - net.rank();
    arrived_.resize(values.size());
    InFlight coming = net.recv(other, kUp, std::as_writable_bytes(std::span(arrived_)));
    InFlight going = net.send(other, kUp, std::as_bytes(values));
    coming.wait();
    going.wait();
    vec::add(values, arrived_);
    return;
  }
  const Tree tree(net.rank(), net.size());
  const std::vector<int>& children = tree.children();
  const std::size_t pieces = pieces_of(values.size());
  arrived_.resize(children.size() * values.size());
  const auto arrived = [&](std::size_t child) {
    return std::span(arrived_).subspan(child * values.size(), values.size());
  };

  std::vector<InFlight> arriving, leaving, returning;
  const auto send_down = [&](std::size_t i) {  // to the largest part of the tree first
    for (const int child : children | std::views::reverse) {
      leaving.push_back(net.send(child, kDown, std::as_bytes(piece(values, i))));
    }
  };
  for (std::size_t i = 0; i < pieces; ++i) {
    for (std::size_t c = 0; c < children.size(); ++c) {
      arriving.push_back(net.recv(children[c], kUp, std::as_writable_bytes(piece(arrived(c), i))));
    }
  }
  for (std::size_t i = 0; i < pieces; ++i) {
    for (std::size_t c = 0; c < children.size(); ++c) {
      arriving[i * children.size() + c].wait();
      vec::add(piece(values, i), piece(arrived(c), i));
    }
    if (tree.is_root()) {
      send_down(i);
    } else {
      leaving.push_back(net.send(tree.parent(), kUp, std::as_bytes(piece(values, i))));
    }
  }
  if (!tree.is_root()) {
    for (std::size_t i = 0; i < pieces; ++i) {
      leaving[i].wait();  // a piece comes back into the memory it left from
      returning.push_back(net.recv(tree.parent(), kDown, std::as_writable_bytes(piece(values, i))));
    }
    for (std::size_t i = 0; i < pieces; ++i) {
      returning[i].wait();
      send_down(i);
    }
  }
  for (InFlight& message : leaving) message.wait();
}

double TreeSum::bytes_sent(std::size_t count, int rank, int size) {
  return static_cast<double>(Tree(rank, size).messages() * count * sizeof(float));
}

void tree_broadcast(Fabric& net, std::span<std::byte> bytes) {
  const Tree tree(net.rank(), net.size());
  if (!tree.is_root()) net.recv(tree.parent(), kDown, bytes).wait();
  // One after the other: together they would share the wire, and the largest part of the tree would wait for all.
  for (const int child : tree.children() | std::views::reverse) net.send(child, kDown, bytes).wait();
}

}  // namespace slipstream
