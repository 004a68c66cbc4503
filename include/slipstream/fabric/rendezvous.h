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
  int rank = 0;     // in an elastic job: the number this process was started with
  int size = 1;     // workers
  int servers = 0;  // processes that only serve: ranks size … size + servers - 1
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  bool hosts = false;                // this process opens the rendezvous
  bool supervised = false;           // a supervisor hosts the rendezvous for the whole job
  std::string store_prefix = {};     // not empty: meet through the store of torchrun at master_addr, under this name
  std::string interface = {};        // network interface for the data; empty: the one that reaches master_addr
  double timeout_seconds = 0;        // limit of one operation and of a peer's silence; 0: automatic (wire/patience.h)
  double join_timeout_seconds = 60;  // how long to wait for all ranks to join

  // The key that a process needs to join: derived from the user's secret (then everything is encrypted), made by the
  // supervisor or, without either, the same for every job: then only the network keeps strangers out.
  std::array<std::byte, 32> key{};
  bool encrypted = false;
  int streams = 0;                 // connections to each peer; 0: chosen by distance
  std::string sums = "auto";       // engine of dense sums: c10d, mesh or auto
  std::string process_group = {};  // c10d sums by this group, which the program has made; empty: by one of our own

  std::function<bool()> interrupted{};  // true: the user wants to stop; polled while waiting for others

  // An elastic job goes on after losing processes and lets others join, within these numbers of workers. 0: not
  // elastic.
  int min_workers = 0, max_workers = 0;

  bool serves() const { return rank >= size && rank < size + servers; }
  bool elastic() const { return min_workers > 0; }
};

}  // namespace slipstream
