// SPDX-License-Identifier: Apache-2.0
//
// Checkpointer: saves the state of all ranks of a job to a folder (checkpoint/folder.h) while they train on. At a step
// that all ranks agree on, each one copies its state, and a thread writes the copy to disk; training waits only for the
// copy. The memory of the copy is kept for the next one. What is equal on all ranks is written once, by rank 0. The
// ranks learn from small gathers, 1, 2, 4, … steps later, whether everybody's files are durable; then rank 0, again in
// a thread, makes the checkpoint complete.
//
// A rank that cannot write (a full disk) says so through `warn`; that checkpoint is dropped on all ranks, training goes
// on and the next one is tried. If the next one is due before the last has been written, the ranks wait for the last.
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

// How often: by steps, or about every so many seconds. "100", "90s", "10min", "2h"; "0" and "" never.
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
    std::function<void(const std::string&)> warn = {};  // called on a failure; training goes on
    double seconds_before = 0;                          // since the last checkpoint, in earlier groups of workers
  };

  // `job` is the CheckpointMeta of the job, without step and files.
  Checkpointer(Fabric& net, Options options, CheckpointMeta job, std::int64_t first_step);
  ~Checkpointer();  // waits for its thread; a checkpoint that is not complete then stays incomplete
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  using Snapshot = std::function<void(StateArchive&)>;  // fills the archive; may communicate

  // `done` steps of the job are done. Saves if a checkpoint is due.
  void after_step(std::int64_t done, const Snapshot& snapshot);
  void save(std::int64_t done, const Snapshot& snapshot);
  // Waits until the last checkpoint is complete on disk. False, on all ranks, where it could not be written.
  bool finish();
  // For seconds_before of the next group. A checkpoint that was not completed counts as due.
  double seconds_since_last() const;

 private:
  enum class Stage : std::int64_t { kWriting, kDurable, kFailed };
  struct Report {
    double seconds = 0;  // since this group's last checkpoint or start
    double before = 0;   // in earlier groups
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
  std::int64_t saved_at_;      // the step of the last checkpoint, or the job's first step
  double began_s_;             // when that was
  std::int64_t asked_at_ = 0;  // steps from saved_at_ to the last ask()
  std::int64_t due_at_;        // step at which time is up; INT64_MAX: not known yet
  bool open_ = false;          // begun, finish() not called yet; this and the next two are the same on all ranks
  bool under_way_ = false;     // not all ranks are known to have written
  bool failed_ = false;        // the last checkpoint has failed
  Report mine_;
  std::vector<Report> all_;  // by rank
  InFlight gather_;          // uses the memory above
  bool asking_ = false;

  std::thread thread_;  // writes, or completes; it alone writes the members below until it has ended
  std::atomic<Stage> stage_{Stage::kDurable};
  FileSum own_sum_, shared_sum_;
  std::string error_;
  StateArchive copy_;  // the last copy, kept for its memory
};

}  // namespace slipstream
