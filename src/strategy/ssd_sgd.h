// SPDX-License-Identifier: Apache-2.0
//
// SSD-SGD: several steps delay. Gradients go to the servers in every step, weights come back only every k steps, and
// meanwhile each worker moves its own copy.
//
//   Y. Xu, D. Dong, Y. Zhao, W. Xu, X. Liao, "SSD-SGD: Communication Sparsification for Distributed Deep Learning
//   Training", arXiv 2012.05396; its ancestor OD-SGD, arXiv 2005.06728, is k = 1.
//
//   worker, step t, with g the gradient at its own weights w:
//     (1)  push g, bucket by bucket during backward             never waits for it
//     (2)  in the warm-up:  wait for W, w <- W                   plain synchronous SGD
//     (3)  if a pull is under way:  wait for it;  w <- W         one step late: it overlapped this step's computing
//     (4)  w <- local step of w with g                           the servers' rule; glu: with a global estimate
//     (5)  wait until all but the last pushes are in the servers' weights
//     (6)  every k steps:  pull W                                with pull=blocking: wait, w <- W
//   server, once every worker's gradient of a round is there:
//     (7)  W <- W - step(mean of g)
//
// Communicated per step and worker: 4 bytes × parameters up, 1/k of it down. With accumulate_push the sum of k steps'
// gradients goes up once: 1/k both ways.
//
// Departures from the papers. By default the local step is the servers' own rule, momentum included, with the worker's
// gradient: the estimate of the global gradient in local=glu is up to two periods old, which momentum of 0.9 turns into
// oscillation (docs/strategies.md has the figures). local=glu divides the weights' movement by the rates it was made
// with (the released code contradicts itself; local=glu-released has its prototype's constants). Sums are in rank
// order, and the warm-up is off by default (the paper's runs have 500 steps).
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <optional>
#include <string>
#include <vector>

#include "correction/local_step.h"
#include "schedule/every.h"
#include "schedule/warmup.h"
#include "server/client.h"

namespace slipstream {

struct SsdSgdOptions {
  std::int64_t period = 5;                   // changes the result, as all but the last
  std::optional<std::int64_t> warmup_steps;  // none: two periods
  std::string pull = "overlapped";
  std::string local = "glu";
  double glu_mix = 0.1;
  double local_lr = 1.0;
  bool accumulate_push = false;
  std::int64_t max_outstanding_pushes = 1;

  void describe(OptionSet& o);
  std::int64_t warmup() const { return warmup_steps.value_or(2 * period); }
};

class SsdSgd final : public Strategy {
 public:
  using Options = SsdSgdOptions;
  explicit SsdSgd(const Options& options);

  static StrategyInfo info();
  static double bytes_sent(const Options& options, const TrafficQuery& q);

  bool needs_servers() const override { return true; }
  BucketRule buckets() const override;
  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void on_finish(Step& s) override;
  void visit(StateVisitor& v) override;

 private:
  bool pulls(std::int64_t t) const { return pull_.sends(t - warmup_.steps); }
  // The buffer that step t's gradients are pushed from, or added up in.
  std::span<float> outgoing(std::int64_t t);
  void fill_outgoing(Step& s, const Bucket& bucket);
  void push(Step& s, std::size_t first, std::size_t last);
  void adopt(Step& s);

  Options options_;
  Warmup warmup_;
  Every pull_;  // counted from the end of the warm-up
  LocalStep local_;
  std::int64_t pending_ = 0;                  // has a pull been asked for and not been adopted?
  double rates_ = 0.0;                        // sum of the learning rates since the last pull was asked for …
  double period_lr_ = 1.0;                    // of the period's first step, with accumulate_push
  double pulled_rates_ = 0.0;                 // … and in the period before it
  std::vector<std::vector<float>> outgoing_;  // one more than may be outstanding
  std::vector<float> pulled_;
  ServerClient servers_;  // last: what it has in flight uses the memory above
};

}  // namespace slipstream
