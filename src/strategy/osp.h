// SPDX-License-Identifier: Apache-2.0
//
// OSP: overlapped synchronisation parallel. What matters is synchronised before the next step, the rest during it. See
// cards/osp.md.
//
// A part's push in (1) waits for (2) where the part was in U before, so that a server sees its rounds in order. Small
// tensors (below a thousandth of the model) and those named like norms always stay in I.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "correction/guess.h"
#include "schedule/every.h"
#include "schedule/ics_budget.h"
#include "server/client.h"
#include "strategy/osp_meter.h"

namespace slipstream {

struct OspOptions {
  double cap = 0.8;  // all change the result
  std::int64_t block_bytes = 256 << 10;
  std::string budget = "loss";
  std::string lgp = "auto";
  std::int64_t resplit_every = 10;

  void describe(OptionSet& o);
};

class Osp final : public Strategy {
 public:
  using Options = OspOptions;
  // Decides which parts are in U at step t in place of importance and budget: for experiments. Equal on all ranks.
  using Split = std::function<std::vector<bool>(std::int64_t t, std::size_t parts)>;

  explicit Osp(const Options& options, Split split = {}) : options_(options), given_split_(std::move(split)) {}

  static double bytes_sent(const Options& options, const TrafficQuery& q);
  static bool follows_clock(const Options& options) { return options.cap > 0.0; }
  static bool splits(const Options& options, std::int64_t t);  // is a split decided at the end of step t?

  bool needs_servers() const override { return true; }
  BucketRule buckets() const override;
  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void on_finish(Step& s) override;
  void visit(StateVisitor& v) override;
  std::string news() override { return std::exchange(news_, {}); }

  const std::vector<ServerPart>& parts() const { return servers_.parts(); }
  const std::vector<bool>& overlapped() const { return in_u_; }    // U of the next step's backward
  std::span<const float> known() const { return guess_.known(); }  // G
  std::int64_t rounds(std::size_t part) const { return servers_.updates(part); }

 private:
  static std::vector<ServerPart> plan(const Options& options, const FlatModel& model, int servers);
  bool probes(std::int64_t t) const;
  void push_urgent(Step& s, std::size_t part);
  void learn_overlapped();
  void guess_overlapped(Step& s);
  void choose_split(Step& s);
  std::string describe_split(const FlatModel& model) const;

  Options options_;
  Split given_split_;
  Guess guess_;
  std::unique_ptr<Optimizer> mirror_;  // adam, adamw: guesses are those of one that saw the own gradients
  std::vector<bool> pinned_;
  std::vector<bool> in_u_;       // the split of the step that computes
  std::vector<bool> under_way_;  // U of the step before, whose ICS runs
  double last_lr_ = 0.0;         // of that step
  IcsBudget budget_{IcsBudget::Rule::kLoss, 0.0};
  std::optional<OspMeter> meter_;
  std::string news_;
  std::vector<float> outgoing_, pulled_;
  ServerClient servers_;  // last: what it has in flight uses the memory above
};

}  // namespace slipstream
