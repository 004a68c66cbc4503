// SPDX-License-Identifier: Apache-2.0
//
// Way: how something that all ranks add up travels. Few bytes and few delays exclude each other; which counts more depends
// on the link.
#pragma once

namespace slipstream {

enum class Way {
  kOwners,     // each rank owns a share, gets everybody's part of it and sends the result to all: two delays
  kEverybody,  // everybody sends everything to everybody: one delay, but with P ranks about P/2 times the bytes
};

}  // namespace slipstream
