// SPDX-License-Identifier: Apache-2.0
//
// Run: what one `slipstream train --out DIR` left behind, read for a report: summary.json, the ledgers of all ranks,
// the network from config.toml, and some steps of trace.json. Only summary.json must be there. A file that cannot be
// understood is a DataError that names it and the line; only a ledger's last line may be cut off, as a killed run
// leaves it.
//
// Seconds are seconds of training: the steps' times and the recoveries, added up. In an elastic job no rank may have
// seen all of it, so each step's time is taken from the lowest rank that wrote it, losses and phases from all ranks
// that did.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "report/timeline.h"

namespace slipstream {

// A moment of a run.
struct Moment {
  std::int64_t step = 0;
  double seconds = 0, samples = 0;
};

struct LossPoint : Moment {
  double loss = 0;  // mean over the ranks; NaN where none was finite
};

struct EvaluationPoint : Moment {
  double value = 0;
};

struct NewsLine : Moment {
  std::string text;
};

// The group of workers has changed.
struct GroupChange : Moment {
  std::int64_t group = 0, workers = 0, lost = 0, joined = 0;
  double recovery_ms = 0;  // the longest of all ranks'
  std::string why;
};

struct Phases {
  double compute_ms = 0, update_ms = 0, encode_ms = 0, waiting_ms = 0;
  double sum_ms() const { return compute_ms + update_ms + encode_ms + waiting_ms; }
};

struct Run {
  std::string path, name;  // as given; its last part
  std::string group;       // runs of a comparison that are drawn together; empty: all are
  std::string strategy, task, model, optimizer, network, date, host;
  std::vector<std::pair<std::string, std::string>> options;  // of the strategy
  std::int64_t parameters = 0, workers = 0, servers = 0, batch = 0, steps = 0, seed = 0;
  double lr = 0, wall_seconds = 0, samples_per_second = 0, step_ms_median = 0, efficiency = 0, hidden_fraction = 0;
  double bytes_sent_per_step = 0, bytes_received_per_step = 0, final_loss = 0;
  std::string metric;  // "test_accuracy" or "test_loss"; empty: none
  double metric_value = 0;
  bool agreement = true, interrupted = false;

  Phases mean;  // of a step: over all ranks, without the first steps; zeros without ledgers
  std::vector<LossPoint> losses;
  std::vector<EvaluationPoint> evaluations;  // the last one is the summary's
  std::vector<NewsLine> news;
  std::vector<GroupChange> changes;
  Timeline timeline;  // empty without a trace
};

// The last part of a folder's path, with or without a slash at its end; the whole path if that part has no name.
std::string run_name(const std::filesystem::path& folder);

Run read_run(const std::filesystem::path& folder);

}  // namespace slipstream
