// SPDX-License-Identifier: Apache-2.0
//
// SparseExchange: the part that all strategies with local top-k selection share. Of a piece of the gradient it sends
// the k largest entries of what this worker owes (error feedback), and replaces the gradient by the sum of what all
// workers sent. A gradient that is not finite is refused, by its layer's name, before anything is touched or sent.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <cstdint>
#include <string>
#include <vector>

#include "correction/error_feedback.h"
#include "topology/sparse_gather.h"

namespace slipstream {

struct SparseOptions {
  double density = 0.01;  // changes the result
  std::int64_t density_warmup = 0;
  std::string momentum = "after";
  std::string wire = "fp32";

  void describe(OptionSet& o);

  // ConfigError where the momentum rule does not fit the optimizer.
  void check_optimizer(const OptimizerOptions& optimizer) const;

  // Entries that are sent of `count` at step t: at least one of any.
  std::size_t entries(std::size_t count, std::int64_t t) const;
  double bytes_sent(std::size_t count, const TrafficQuery& q) const;
};

class SparseExchange {
 public:
  SparseExchange(const SparseOptions& options, std::size_t count);

  void start(Step& s, const Bucket& piece);  // selects and sends; never waits
  // Waits for all pieces in the order they were started, then updates the weights with the mean.
  void finish(Step& s);

  ErrorFeedback& owed() { return owed_; }
  void visit(StateVisitor& v) { owed_.visit(v); }

 private:
  struct Piece {
    Bucket bucket;
    SparseGather gather;
  };

  SparseOptions options_;
  sparse_payload::ValueFormat format_;
  ErrorFeedback owed_;
  Sparse selected_;  // scratch
  std::vector<Piece> pieces_;
  std::size_t started_ = 0;  // of pieces_, this step
};

}  // namespace slipstream
