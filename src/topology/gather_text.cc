// SPDX-License-Identifier: Apache-2.0
#include "topology/gather_text.h"

#include <algorithm>
#include <cstdint>

namespace slipstream {

std::vector<std::string> gather_text(Fabric& net, const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(net.size());
  const std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(ranks);
  net.gather(std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths))).wait();

  const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string padded = mine;
  padded.resize(longest);
  std::string joined(longest * ranks, '\0');
  net.gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(joined))).wait();

  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r) texts.push_back(joined.substr(r * longest, lengths[r]));
  return texts;
}

}  // namespace slipstream
