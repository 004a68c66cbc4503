// SPDX-License-Identifier: Apache-2.0
//
// Rendezvous: who this process is in its job, and how the processes of the job find and trust each other.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>

namespace slipstream {

struct Rendezvous {
  int rank = 0;     // of an elastic job: the number this process was started with
  int size = 1;     // workers
  int servers = 0;  // processes that only serve: ranks size … size + servers - 1
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  bool hosts = false;                // this process opens the rendezvous
  bool supervised = false;           // a supervisor holds it, and stays
  std::string store_prefix = {};     // not empty: torchrun's store at master_addr tells where to meet, under this name
  std::string interface = {};        // network interface for the data; empty: the one that reaches master_addr
  double timeout_seconds = 0;        // of one operation, and of a peer's silence; 0: chosen (wire/patience.h)
  double join_timeout_seconds = 60;  // for all ranks to appear

  // What all must know to join. Derived from what the user gave (then everything is encrypted), made by the supervisor,
  // or, where neither is there, the same for everybody: then the job is as closed as its network.
  std::array<std::byte, 32> key{};
  bool encrypted = false;
  int streams = 0;            // connections to each peer; 0: chosen by distance
  std::string sums = "auto";  // engine of dense sums: c10d, mesh or auto

  std::function<bool()> interrupted{};  // true: the user wants to stop; asked while others are waited for

  // An elastic job goes on when processes are lost, and others may join: with so many workers; 0: it is not elastic.
  int min_workers = 0, max_workers = 0;

  bool serves() const { return rank >= size && rank < size + servers; }
  bool elastic() const { return min_workers > 0; }
};

}  // namespace slipstream
