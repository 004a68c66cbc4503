// SPDX-License-Identifier: Apache-2.0
//
// Way: how data that all ranks add up travels: with few bytes or with few delays. Which is better depends on the link.
#pragma once

namespace slipstream {

enum class Way {
  kOwners,     // each rank owns a share, adds everybody's part of it and sends the result to all: two delays
  kEverybody,  // everybody sends everything to everybody: one delay, but with P ranks about P/2 times the bytes
};

}  // namespace slipstream
