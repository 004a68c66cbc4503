// SPDX-License-Identifier: Apache-2.0
//
// Peers: what a user would run today, on the same model, data, optimizer and network. A peer is `ddp`, `fp16`,
// `powersgd1` or `powersgd4` (PyTorch's DistributedDataParallel and its communication hooks), `hook-STRATEGY` (our hook
// under DDP) or `python-STRATEGY` (our Python loop), optionally with `@MB`, the size of DDP's buckets; or
// `torchft-local`, `torchft-diloco` or `hivemind`, optionally with `@STEPS`, the period of their averages. The script
// that runs them, bench/lab/peer.py, is part of the program and is written where it is needed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "report/run.h"

namespace slipstream {

std::string_view peer_script();  // its text; written by cmake/embed_peer.cmake

void check_peer(const std::string& peer);                      // ConfigError for an unknown name
std::vector<std::string> peer_flags(const std::string& peer);  // --hook fp16 --bucket-mb 1000

// What the script printed, as a run: without bytes and phases, which it cannot know. DataError for any other text.
Run peer_run(const std::string& printed, const std::string& peer, const std::string& link);

}  // namespace slipstream
