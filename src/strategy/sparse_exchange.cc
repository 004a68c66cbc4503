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
  const auto wanted = static_cast<std::size_t>(share * static_cast<double>(count));
  return std::min(count, std::max<std::size_t>(1, wanted));
}

double SparseOptions::bytes_sent(std::size_t count, const TrafficQuery& q) const {
  if (count == 0) return 0;
  return SparseGather::bytes_sent(entries(count, q.t), count, value_format(wire), q.workers);
}

SparseExchange::SparseExchange(const SparseOptions& options, std::size_t count)
    : options_(options), format_(value_format(options.wire)), owed_(count, options.momentum == "corrected") {}

void SparseExchange::start(Step& s, const Bucket& piece) {
  if (piece.count == 0) return;
  require_finite(s, piece.offset, piece.count);
  owed_.take(piece.offset, s.model.grads(piece), 1.0F, static_cast<float>(s.opt.options().momentum),
             options_.entries(piece.count, s.t), selected_);
  if (format_ != sparse_payload::ValueFormat::kFp32) {
    const auto residual = owed_.residual().subspan(piece.offset, piece.count);
    for (std::size_t i = 0; i < selected_.values.size(); ++i) {
      residual[selected_.indices[i]] = selected_.values[i] - sparse_payload::rounded(selected_.values[i], format_);
    }
  }
  if (started_ == pieces_.size()) pieces_.push_back({piece, SparseGather(format_)});
  Piece& next = pieces_[started_++];
  next.bucket = piece;
  next.gather.start(s.net, selected_, piece.count);
}

void SparseExchange::finish(Step& s) {
  for (std::size_t i = 0; i < started_; ++i) pieces_[i].gather.finish(s.model.grads(pieces_[i].bucket));
  started_ = 0;
  const float mean = 1.0F / static_cast<float>(s.net.size());
  if (options_.momentum == "after") {
    s.opt.step(s.model.weights(), s.model.grads(), mean);
    return;
  }
  const OptimizerOptions& sgd = s.opt.options();
  vec::sgd_step(
      s.model.weights(), s.model.grads(), {},
      {.lr = static_cast<float>(s.opt.lr()), .weight_decay = static_cast<float>(sgd.weight_decay), .scale = mean});
}

}  // namespace slipstream
