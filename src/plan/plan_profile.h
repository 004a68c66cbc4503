// SPDX-License-Identifier: Apache-2.0
//
// PlanProfile: everything that a prediction is based on: the model's tensors, how long a worker computes and in which
// order gradients become ready, the link, and what work on the processor costs. Given by flags, or measured
// (runtime/measure_profile.h, strategy/auto_sgd.h).
//
// StandIn: the model in small, for a simulation. It has all of the model's tensors, each smaller by the same factor, so
// that buckets are cut, layers merged and entries selected as in the model; every byte counts `scale` times. Its
// gradients cost next to nothing: few entries are large, partly the same ones on all workers.
#pragma once

#include <slipstream/model/flat_model.h>
#include <slipstream/optim/optimizer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sim/sim_links.h"
#include "task/toy.h"
#include "topology/link_probe.h"

namespace slipstream {

struct PlanProfile {
  int workers = 2;
  std::vector<Parameter> parameters;                   // the model's, in registration order
  double compute_s = 0.1;                              // forward and backward of a step
  std::vector<std::vector<double>> compute_factors{};  // by worker and step, repeated; empty: all 1
  double forward_share = 1.0 / 3;                      // share of compute_s before the first gradient is ready
  std::vector<double> backward_shares{};               // shares of the rest, by parameter; empty: by size
  double update_s = 0;                                 // of a dense step; 0: included in compute_s
  LinkModel link{};                                    // rate of payload, not of the line
  double io_s_per_byte = 0;   // computing time that moving a byte costs, where both share a core
  bool costs = true;          // do encoding and work beyond a dense update take time?
  bool shared_cores = false;  // … and does the parameter server beside a worker take its time?
  double cpu_factor = 1;      // how much slower such work is than here and now
  OptimizerOptions optimizer{};

  // Takes times as measured: of one step by tensor, in the order of backward; the first includes forward.
  void take_times(std::vector<double> by_bucket);
  void take_link(const LinkCosts& costs);

  double parameter_count() const;
  double worker_alone_s() const { return compute_s + update_s; }
};

// `tensors` tensors of about the same size, each with a small one beside it, as weights have biases.
std::vector<Parameter> equal_tensors(double parameters, std::int64_t tensors);

class StandIn final : public ToyTask {
 public:
  // With at most about `floats` floats, and at least one for each tensor that is not empty.
  StandIn(const std::vector<Parameter>& model, std::size_t floats);

  double scale() const { return scale_; }
  std::vector<Parameter> parameters() const override { return parameters_; }
  void init(std::span<float> weights, std::uint64_t seed) const override;
  double gradient(std::span<const float> weights, std::span<float> grads, int rank, std::int64_t t) const override;

 private:
  std::vector<Parameter> parameters_;
  double scale_ = 1;
  std::vector<float> sizes_, noise_;
};

}  // namespace slipstream
