// SPDX-License-Identifier: Apache-2.0
#include "strategy/sparse_exchange.h"

#include <slipstream/base/error.h>
#include <slipstream/strategy/registry.h>

#include <algorithm>
#include <cmath>

#include "base/vec.h"
#include "schedule/warmup.h"
#include "strategy/finite_gradient.h"

namespace slipstream {
void SparseOptions::describe(OptionSet& o) {
  o.real("density", density, {1e-6, 1.0}, kChangesResult, "share of the entries that is sent in a step");
  o.integer("density_warmup", density_warmup, {0, 1'000'000'000}, kChangesResult,
            "steps over which the density falls from 1/4 by a factor of 4 in each quarter; 0: none");
  describe_wire(o);
}

void SparseOptions::describe_wire(OptionSet& o) {
  o.choice("wire", wire, {"fp32", "fp16", "bf16", "int8"}, kChangesResult,
           "number format of the values in lists; what rounding takes away is owed, too");
}

ErrorFeedback::Rule owing_rule(Step& s, std::size_t offset, std::span<float> grads) {
  return {.factor = s.opt.direction(offset, grads, s.net.size()),
          .ahead = s.opt.options().nesterov ? static_cast<float>(s.opt.lr()) : 0.0F};
}

std::size_t SparseOptions::entries(std::size_t count, std::int64_t t) const {
  double share = density;
  const Warmup warmup{density_warmup};
  if (warmup.active(t))
    share = std::max(
        share, std::pow(0.25, 1 + std::floor(4.0 * static_cast<double>(t) / static_cast<double>(density_warmup))));
  return entries_at(share, count);
}

double SparseOptions::bytes_sent(std::size_t count, const TrafficQuery& q) const {
  if (count == 0) return 0;
  return SparseGather::bytes_sent(entries(count, q.t), count, format(), q.workers);
}

SparseExchange::SparseExchange(const SparseOptions& options, const Step& s)
    : format_(options.format()), owed_(s.model.count(), s.opt.memory()) {}

void SparseExchange::start(Step& s, const Bucket& bucket, std::size_t entries) {
  if (bucket.count == 0) return;
  Piece& piece = next_piece(s, bucket, false);
  const auto grads = s.model.grads(bucket);
  const ErrorFeedback::Rule rule = owing_rule(s, bucket.offset, grads);
  owed_.take(bucket.offset, grads, rule, entries, selected_);  // (1) (2)
  factor_ = rule.factor;
  require_finite_selection(s, bucket);
  if (format_ != ValueFormat::kFp32) {
    const auto residual = owed_.residual(bucket.offset, bucket.count);
    arrives_ = selected_.values;
    round_as_sent(arrives_, format_);
    for (std::size_t i = 0; i < arrives_.size(); ++i) {
      residual[selected_.indices[i]] += selected_.values[i] - arrives_[i];
    }
  }
  piece.gather.start(s.net, selected_, bucket.count);  // (3)
}

// To a selection by magnitude nothing is larger than what is not finite, so there is no need to look at all gradients.
void SparseExchange::require_finite_selection(const Step& s, const Bucket& bucket) const {
  const std::size_t bad = vec::first_nonfinite(selected_.values);
  if (bad == selected_.values.size()) return;
  require_finite(s, bucket.offset, bucket.count);
  fail<DivergedError>("what rank {} owes '{}' is too large for a float at step {}; try a smaller --lr or --clip-norm",
                      s.net.rank(), s.model.slot_at(bucket.offset + selected_.indices[bad]).name, s.t);
}

SparseExchange::Selection SparseExchange::selection(Step& s, const Bucket& bucket) {
  const double factor = factor_;
  return {selected_, owed_.residual(bucket.offset, bucket.count),
          factor * factor * vec::sum_of_squares(s.model.grads(bucket)), owed_.mean_age()};
}

void SparseExchange::start_dense(Step& s, const Bucket& bucket) {
  if (bucket.count == 0) return;
  require_finite(s, bucket.offset, bucket.count);
  Piece& piece = next_piece(s, bucket, true);
  const auto grads = s.model.grads(bucket);
  owed_.take_all(bucket.offset, grads, owing_rule(s, bucket.offset, grads));  // (1) (2)
  piece.sum = s.net.sum(grads);                                               // (3)
}

void SparseExchange::finish(Step& s) {
  const float mean = 1.0F / static_cast<float>(s.net.size());
  for (std::size_t i = 0; i < started_; ++i) {
    Piece& piece = pieces_[i];
    piece.dense ? piece.sum.wait() : piece.gather.wait();  // (4)
    const auto updating = s.opt.timed();
    const auto weights = s.model.weights(piece.bucket);
    s.opt.decay(piece.bucket.offset, weights);
    if (piece.dense) {
      vec::add_scaled(weights, s.model.grads(piece.bucket), -mean);  // (5)
    } else {
      piece.gather.finish_adding(weights, -mean);  // (4) (5)
    }
  }
  started_ = 0;
}

SparseExchange::Piece& SparseExchange::next_piece(Step& s, const Bucket& bucket, bool dense) {
  if (started_ == 0) {
    s.opt.begin_step();
    owed_.begin_step();
  }
  if (started_ == pieces_.size()) pieces_.emplace_back(format_);
  Piece& piece = pieces_[started_++];
  piece.bucket = bucket;
  piece.dense = dense;
  return piece;
}

}  // namespace slipstream
