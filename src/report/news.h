// SPDX-License-Identifier: Apache-2.0
//
// What strategies decide is in the ledger as a line of text. Some of it is by layer, in the form
//
//   plan for a link of 98.4 Mb/s and 0 ms: [fc.bias: dense, all of 10] [fc.weight: 51 (0.5 %) of 10240]
//
// and several such pieces are joined by "; ". This splits a text into its pieces; a text of any other form is one piece
// without layers. It does not interpret what a strategy says.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slipstream {

struct NewsPiece {
  std::string text;                                         // all of it, or the part before the layers
  std::vector<std::pair<std::string, std::string>> layers;  // name, what is said about it
};

std::vector<NewsPiece> take_apart(std::string_view news);

}  // namespace slipstream
