// SPDX-License-Identifier: Apache-2.0
//
// SparseExchange: the part that strategies with local top-k selection share. Each worker turns its own gradient into a
// direction (Optimizer::direction), adds it to what it owes, and sends of the k largest entries of that, or of all; all
// workers move the weights by the mean of what was sent. Where all is sent, in every step, this is synchronous SGD with
// momentum, to rounding (correction/error_feedback). So a layer may be sparse now and dense later, and nothing is lost.
//
// These are the lines (1) … (5) of cards/topk.md and cards/lags.md.
//
// A gradient that is not finite is refused, by its layer's name, before anything is sent.
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
  std::string wire = "fp32";

  void describe(OptionSet& o);
  void describe_wire(OptionSet& o);
  ValueFormat format() const { return parse_value_format(wire); }

  // Entries that are sent of `count` at step t: at least one of any.
  std::size_t entries(std::size_t count, std::int64_t t) const;
  double bytes_sent(std::size_t count, const TrafficQuery& q) const;
};

// How this worker owes the gradient of a range, which becomes a direction (up to rule.factor).
ErrorFeedback::Rule owing_rule(Step& s, std::size_t offset, std::span<float> grads);

class SparseExchange {
 public:
  SparseExchange(const SparseOptions& options, const Step& s);

  void start(Step& s, const Bucket& piece, std::size_t entries);  // selects and sends; never waits
  void start_dense(Step& s, const Bucket& piece);                 // sends of all entries, in fp32; never waits
  // Waits for all pieces in the order they were started, and moves the weights.
  void finish(Step& s);

  // Of the last start(), until the next.
  struct Selection {
    const Sparse& sent;
    std::span<const float> owed;  // after it
    double direction_squared;     // a pass over the gradient: not for every step
    double mean_age;              // see ErrorFeedback
  };
  Selection selection(Step& s, const Bucket& piece);

  void visit(StateVisitor& v) { owed_.visit(v); }
  std::span<float> owed() { return owed_.residual(); }

 private:
  struct Piece {
    explicit Piece(ValueFormat format) : gather(format) {}

    Bucket bucket;
    bool dense = false;
    SparseGather gather;  // of a sparse piece
    InFlight sum;         // of a dense one
  };
  Piece& next_piece(Step& s, const Bucket& bucket, bool dense);
  void require_finite_selection(const Step& s, const Bucket& bucket) const;

  ValueFormat format_;
  ErrorFeedback owed_;
  Sparse selected_;             // by the last start()
  float factor_ = 1;            // of that start: the direction is this times what the gradient has become
  std::vector<float> arrives_;  // scratch: of its values
  std::deque<Piece> pieces_;    // never moved: what is in flight uses their memory
  std::size_t started_ = 0;     // of pieces_, this step
};

}  // namespace slipstream
