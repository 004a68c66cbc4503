// SPDX-License-Identifier: Apache-2.0
//
// What happens to a training when its group of workers changes: some were lost, others joined, or the job is resumed
// with another number of them. Each worker brings its Holdings to the new group. The worker that has trained furthest
// is the source: its weights and optimizer become everybody's (Engine). What a worker owed it still owes, times new
// workers / old workers: this keeps the mean over the workers, and so the weights once all is paid, unchanged. What a
// lost worker owed is written off.
//
// The strategy starts again at its step 0: warm-ups, periods and measurements begin anew, averages under way are
// forgotten. Servers get what the old ones held if all of it could be read: from a checkpoint, or if nobody was lost.
// Otherwise they get the workers' weights, and their momentum begins at zero.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <cstdint>
#include <vector>

#include "checkpoint/state_archive.h"
#include "engine/server_books.h"

namespace slipstream {

struct Holdings {
  std::int64_t steps = -1;     // completed; -1: none, this worker is new
  int rank = -1, workers = 0;  // its rank in the group it comes from, and that group's size
  std::int64_t group = 0;      // the number of that group; 0: none
  std::vector<float> weights{};
  StateArchive state{};         // the optimizer's and the engine's
  std::vector<float> owed{};    // what this worker owed: Strategy::owed
  ServerBooks servers{};        // what servers held, as far as this worker could read it
  std::vector<double> norms{};  // norms of what each worker of that group owed, by rank, by their last reports
};

struct Meeting {
  int source = 0;          // the worker whose weights and optimizer all take
  std::int64_t steps = 0;  // the source's
  std::int64_t group = 1;  // the number of this group
  int lost = 0;            // workers of the source's group that are not in this one
  int joined = 0;          // workers that come from no group, or from an older one
  double written_off = 0;  // norm of what the lost workers owed
  bool first = true;       // nobody has trained yet
};

// A collective of the new group.
Meeting meet(Fabric& net, const Holdings& mine);

// Copies the source's values to all ranks. A collective; all must visit the same things with the same sizes.
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
