// SPDX-License-Identifier: Apache-2.0
//
// What happens to a training when its group of workers changes: some were lost, or others joined, or the job is resumed
// with another number of them. Each worker takes its Holdings along; in the new group they meet: the one that has trained
// furthest is the source, and its weights and optimizer become everybody's (Engine). What a worker owed it still
// owes, times new workers / old workers, so that the mean over the workers, and with it the weights once all is paid, stays
// what it was. What a lost worker owed is written off.
//
// The strategy starts anew, at its step 0: warm-ups, periods and measurements begin again, averages under way are
// forgotten. Servers get what the old ones held, where all of it could be read: from a checkpoint, or where nobody was
// lost. Else they get the workers' weights, and their momentum begins at zero.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstdint>
#include <vector>

#include "checkpoint/state_archive.h"
#include "engine/server_books.h"

namespace slipstream {

struct Holdings {
  std::int64_t steps = -1;     // completed; -1: none, this worker is new
  int rank = -1, workers = 0;  // its place in the group it comes from, and the size of that
  std::int64_t group = 0;      // which one that was; 0: none
  std::vector<float> weights{};
  StateArchive state{};         // the optimizer's, and what the engine keeps
  std::vector<float> owed{};    // by this worker: Strategy::owed
  ServerBooks servers{};        // what servers held that this worker could still read
  std::vector<double> norms{};  // of what each worker of that group owed, by rank, when they last told
};

struct Meeting {
  int source = 0;          // whose weights and optimizer all take
  std::int64_t steps = 0;  // it has done
  std::int64_t group = 1;  // the number of this group
  int lost = 0;            // workers of the source's group that are not here
  int joined = 0;          // workers that come from no group, or from an older one
  double written_off = 0;  // the norm of what the lost ones owed
  bool first = true;       // nobody has trained yet
};

// A collective of the new group.
Meeting meet(Fabric& net, const Holdings& mine);

// The source's values for everybody. A collective; all must name the same things of the same sizes.
class FromSource final : public StateVisitor {
 public:
  FromSource(Fabric& net, int source) : net_(net), source_(source) {}
  void floats(std::string_view name, std::span<float> values) override;
  void integer(std::string_view name, std::int64_t& value) override;

 private:
  Fabric& net_;
  int source_;
};

}  // namespace slipstream
