// SPDX-License-Identifier: Apache-2.0
//
// SparseExchange: the part that all strategies with local top-k selection share. Of a piece of the gradient it sends
// the k largest entries of what this worker owes (error feedback), or all of it, and replaces the gradient by the sum
// of what all workers sent. A gradient that is not finite is refused, by its layer's name, before anything is touched
// or sent.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <cstdint>
#include <deque>
#include <span>
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
  bool lr_inside = false;  // what is owed is in units of weights: each gradient keeps the learning rate of its step

  void describe(OptionSet& o);

  // ConfigError where the momentum rule does not fit the optimizer.
  void check_optimizer(const OptimizerOptions& optimizer) const;

  // Entries that are sent of `count` at step t: at least one of any.
  std::size_t entries(std::size_t count, std::int64_t t) const;
  double bytes_sent(std::size_t count, const TrafficQuery& q) const;
};

class SparseExchange {
 public:
  SparseExchange(const SparseOptions& options, FlatModel& model);

  void start(Step& s, const Bucket& piece, std::size_t entries);  // selects and sends; never waits
  void start_dense(Step& s, const Bucket& piece);                 // sends all that is owed, in fp32; never waits
  // Waits for all pieces in the order they were started, then updates the weights with the mean.
  void finish(Step& s);

  void visit(StateVisitor& v);

 private:
  struct Piece {
    explicit Piece(sparse_payload::ValueFormat format) : gather(format) {}

    Bucket bucket;
    bool dense = false;
    SparseGather gather;  // of a sparse piece
    InFlight sum;         // of a dense one
  };

  Piece& next_piece(const Bucket& bucket, bool dense);
  void step_dense(Step& s, float mean);
  void step_sent(Step& s, float mean);
  float unit(const Step& s) const;  // what a gradient is multiplied with before it is owed

  SparseOptions options_;
  sparse_payload::ValueFormat format_;
  ErrorFeedback owed_;
  std::vector<bool> settled_;  // by slot: nothing is owed there
  Sparse selected_;            // scratch
  std::deque<Piece> pieces_;   // never moved: what is in flight uses their memory
  std::size_t started_ = 0;    // of pieces_, this step
};

}  // namespace slipstream
