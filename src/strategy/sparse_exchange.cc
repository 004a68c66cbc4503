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
namespace {

sparse_payload::ValueFormat value_format(const std::string& wire) {
  if (wire == "fp32") return sparse_payload::ValueFormat::kFp32;
  return wire == "fp16" ? sparse_payload::ValueFormat::kFp16 : sparse_payload::ValueFormat::kBf16;
}

}  // namespace

void SparseOptions::describe(OptionSet& o) {
  o.real("density", density, {1e-6, 1.0}, kChangesResult, "share of the entries that is sent in a step");
  o.integer("density_warmup", density_warmup, {0, 1'000'000'000}, kChangesResult,
            "steps over which the density falls from 1/4 by a factor of 4 in each quarter; 0: none");
  o.choice("momentum", momentum, {"after", "corrected"}, kChangesResult,
           "momentum on the sum, as the optimizer does it, or on each worker before selection (DGC; sgd only)");
  o.choice("wire", wire, {"fp32", "fp16", "bf16"}, kChangesResult,
           "number format of the values; what rounding takes away is owed, too");
}

void SparseOptions::check_optimizer(const OptimizerOptions& optimizer) const {
  if (momentum != "corrected") return;
  if (optimizer.kind != "sgd" || optimizer.nesterov || optimizer.clip_norm > 0) {
    fail<ConfigError>(
        "momentum=corrected puts the momentum before selection: it needs optimizer=sgd, without nesterov and "
        "clip_norm; or use momentum=after");
  }
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
  return SparseGather::bytes_sent(entries(count, q.t), count, value_format(wire), q.workers);
}

SparseExchange::SparseExchange(const SparseOptions& options, FlatModel& model)
    : options_(options),
      format_(value_format(options.wire)),
      owed_(model.count(), options.momentum == "corrected"),
      settled_(model.slots().size(), true) {}

void SparseExchange::start(Step& s, const Bucket& bucket, std::size_t entries) {
  if (bucket.count == 0) return;
  const auto grads = s.model.grads(bucket);
  require_finite(s, bucket.offset, bucket.count);
  owed_.take(bucket.offset, grads, unit(s), static_cast<float>(s.opt.options().momentum), entries, selected_);
  std::fill(settled_.begin() + static_cast<std::ptrdiff_t>(bucket.first_slot),
            settled_.begin() + static_cast<std::ptrdiff_t>(bucket.end_slot), false);
  if (format_ != sparse_payload::ValueFormat::kFp32) {
    const auto residual = owed_.residual().subspan(bucket.offset, bucket.count);
    for (std::size_t i = 0; i < selected_.values.size(); ++i) {
      residual[selected_.indices[i]] = selected_.values[i] - sparse_payload::rounded(selected_.values[i], format_);
    }
  }
  next_piece(bucket, false).gather.start(s.net, selected_, bucket.count);
}

void SparseExchange::start_dense(Step& s, const Bucket& bucket) {
  if (bucket.count == 0) return;
  const auto grads = s.model.grads(bucket);
  const auto first = settled_.begin() + static_cast<std::ptrdiff_t>(bucket.first_slot);
  const auto end = settled_.begin() + static_cast<std::ptrdiff_t>(bucket.end_slot);
  const bool settled = std::all_of(first, end, [](bool one) { return one; });
  if (!settled) require_finite(s, bucket.offset, bucket.count);  // else no memory can be spoilt; the loss will tell
  owed_.take_all(bucket.offset, grads, unit(s), static_cast<float>(s.opt.options().momentum), settled);
  std::fill(first, end, true);
  next_piece(bucket, true).sum = s.net.sum(grads);
}

void SparseExchange::finish(Step& s) {
  const float mean = 1.0F / static_cast<float>(s.net.size()) / unit(s);
  if (options_.momentum == "corrected" && s.opt.options().weight_decay == 0.0) {
    step_sent(s, mean);
  } else {
    step_dense(s, mean);
  }
  started_ = 0;
}

// All weights move: by the optimizer's momentum or by weight decay.
void SparseExchange::step_dense(Step& s, float mean) {
  for (std::size_t i = 0; i < started_; ++i) {
    Piece& piece = pieces_[i];
    if (piece.dense) {
      piece.sum.wait();
    } else {
      piece.gather.finish(s.model.grads(piece.bucket));
    }
  }
  if (options_.momentum == "after") {
    s.opt.step(s.model.weights(), s.model.grads(), mean);
    return;
  }
  const OptimizerOptions& sgd = s.opt.options();
  vec::sgd_step(
      s.model.weights(), s.model.grads(), {},
      {.lr = static_cast<float>(s.opt.lr()), .weight_decay = static_cast<float>(sgd.weight_decay), .scale = mean});
}

// Only what somebody sent moves, to the same bits. The gradients, no longer needed, are where it is added up.
void SparseExchange::step_sent(Step& s, float mean) {
  const auto lr = static_cast<float>(s.opt.lr());
  for (std::size_t i = 0; i < started_; ++i) {
    Piece& piece = pieces_[i];
    const auto sums = s.model.grads(piece.bucket);
    const auto weights = s.model.weights().subspan(piece.bucket.offset, piece.bucket.count);
    if (piece.dense) {
      piece.sum.wait();
      vec::sgd_step(weights, sums, {}, {.lr = lr, .scale = mean});
      continue;
    }
    const auto lists = piece.gather.finish_lists(piece.bucket.count);
    for (const Sparse& sent : lists) {
      for (const std::uint32_t at : sent.indices) sums[at] = 0.0F;
    }
    for (const Sparse& sent : lists) {
      for (std::size_t j = 0; j < sent.indices.size(); ++j) sums[sent.indices[j]] += sent.values[j];
    }
    for (const Sparse& sent : lists) {
      for (const std::uint32_t at : sent.indices) {
        weights[at] -= lr * (mean * sums[at]);
        sums[at] = 0.0F;  // another rank may have sent this entry, too
      }
    }
  }
}

void SparseExchange::visit(StateVisitor& v) {
  owed_.visit(v);
  std::fill(settled_.begin(), settled_.end(), false);  // the visitor may have restored anything
}

SparseExchange::Piece& SparseExchange::next_piece(const Bucket& bucket, bool dense) {
  if (started_ == pieces_.size()) pieces_.emplace_back(format_);
  Piece& piece = pieces_[started_++];
  piece.bucket = bucket;
  piece.dense = dense;
  return piece;
}

float SparseExchange::unit(const Step& s) const {
  if (!options_.lr_inside) return 1.0F;
  if (!(s.opt.lr() > 0)) {
    fail<ConfigError>("lr_inside=true needs a learning rate above 0, but it is {} at step {}", s.opt.lr(), s.t);
  }
  return static_cast<float>(s.opt.lr());
}

}  // namespace slipstream
