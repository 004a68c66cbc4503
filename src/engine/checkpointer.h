// SPDX-License-Identifier: Apache-2.0
//
// Checkpointer: saves the state of all ranks of a job to a folder (checkpoint/folder.h) while they train on. At a step
// that all ranks agree on each one copies its state, and a thread of its own writes the copy out; training waits for the
// copy alone. The memory of the copy is kept for the next one. What all ranks hold alike is written once, by rank 0. The
// ranks learn from small gathers, 1, 2, 4, … steps later, whether everybody's files are durable; then rank 0, again by
// a thread, makes the checkpoint complete.
//
// A rank that cannot write (a full disk) says so through `warn`; that checkpoint is dropped on all ranks, training goes
// on and the next one is tried. If the next is due before the last has been written, the ranks wait for that.
//
// after_step, save and finish are collectives. Training thread only.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/folder.h"

namespace slipstream {

// How often: so many steps, or about so many seconds. "100", "90s", "10min", "2h"; "0" and "" never.
struct CheckpointEvery {
  std::int64_t steps = 0;
  double seconds = 0;

  static CheckpointEvery parse(const std::string& text);
  bool never() const { return steps == 0 && seconds == 0; }
};

class Checkpointer {
 public:
  struct Options {
    std::filesystem::path folder;
    CheckpointEvery every;
    std::int64_t keep = 0;                              // newest complete ones; 0: all
    std::function<void(const std::string&)> warn = {};  // training goes on
    double seconds_before = 0;                          // since the last one, by an earlier group of workers
  };

  // `job` describes it: all of CheckpointMeta but step and files.
  Checkpointer(Fabric& net, Options options, CheckpointMeta job, std::int64_t first_step);
  ~Checkpointer();  // waits for its thread; what is not complete then stays incomplete
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  using Snapshot = std::function<void(StateArchive&)>;  // fills it; may exchange with the other ranks

  // So many steps of the job are done.
  void after_step(std::int64_t done, const Snapshot& snapshot);
  void save(std::int64_t done, const Snapshot& snapshot);
  // Waits until the last checkpoint is complete on disk. False, on all ranks, where it could not be written.
  bool finish();
  // As seconds_before of the next group. One that was not completed counts as due.
  double seconds_since_last() const;

 private:
  enum class Stage : std::int64_t { kWriting, kDurable, kFailed };
  struct Report {
    double seconds = 0;  // since the last checkpoint of this group, or its start
    double before = 0;   // and in earlier groups
    Stage stage = Stage::kWriting;
    FileSum sum;
  };

  bool due(std::int64_t done) const;
  void write(StateArchive& shared, StateArchive& own);
  Report report() const;
  void ask(std::int64_t done);
  void heed();
  void complete(const CheckpointMeta& meta);
  void join();
  std::filesystem::path target() const { return step_folder(options_.folder, saved_at_); }

  Fabric& net_;
  Options options_;
  CheckpointMeta job_;
  std::int64_t saved_at_;      // the step of the last checkpoint, or the first of the job
  double began_s_;             // when that was
  std::int64_t asked_at_ = 0;  // steps after saved_at_
  std::int64_t due_at_;        // by the clock; INT64_MAX: not known yet
  bool open_ = false;          // begun, and finish() has not been called; agreed on, as are the next two
  bool under_way_ = false;     // not all ranks are known to have written
  bool failed_ = false;        // the last one
  Report mine_;
  std::vector<Report> all_;  // by rank
  InFlight gather_;          // uses the memory above
  bool asking_ = false;

  std::thread thread_;  // writes, or completes; what follows is its to write until it has ended
  std::atomic<Stage> stage_{Stage::kDurable};
  FileSum own_sum_, shared_sum_;
  std::string error_;
  StateArchive copy_;  // the last one, for its memory
};

}  // namespace slipstream
