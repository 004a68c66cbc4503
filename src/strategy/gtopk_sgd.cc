// SPDX-License-Identifier: Apache-2.0
#include "strategy/gtopk_sgd.h"

#include <slipstream/base/error.h>

#include <algorithm>

#include "strategy/finite_gradient.h"

namespace slipstream {

GtopkSgd::GtopkSgd(const Options& options) : options_(options), tree_(options.format()) {
  if (options.wire == "fp32" || options.putback == "conservative") return;
  fail<ConfigError>(
      "putback=published keeps nothing of what wire={} rounds away on the way up the tree; use "
      "putback=conservative or wire=fp32",
      options.wire);
}

void GtopkSgd::on_step(Step& s) {
  const auto grads = s.model.grads(), weights = s.model.weights();
  if (grads.empty()) return;
  require_finite(s, 0, grads.size());
  s.opt.begin_step();
  owed_->begin_step();
  const std::size_t k = options_.entries(grads.size(), s.t);
  owed_->take(0, grads, owing_rule(s, 0, grads), k, own_);  // (1) (2)
  Sparse global = own_;
  tree_.reduce(s.net, global, grads.size(), dropped_);  // (3) (4)
  put_back(own_, global);                               // (5)
  const auto updating = s.opt.timed();
  s.opt.decay(0, weights);
  const float mean = 1.0F / static_cast<float>(s.net.size());
  for (std::size_t j = 0; j < global.indices.size(); ++j) weights[global.indices[j]] -= mean * global.values[j];  // (6)
}

void GtopkSgd::put_back(const Sparse& own, const Sparse& global) {
  const auto residual = owed_->residual();
  if (options_.putback == "conservative") {
    for (std::size_t j = 0; j < dropped_.indices.size(); ++j) residual[dropped_.indices[j]] += dropped_.values[j];
    return;
  }
  for (std::size_t j = 0; j < own.indices.size(); ++j) {
    const std::uint32_t i = own.indices[j];
    if (!std::binary_search(global.indices.begin(), global.indices.end(), i)) residual[i] += own.values[j];
  }
}

double GtopkSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  const std::size_t count = q.model.count();
  return count == 0 ? 0
                    : SparseTree::bytes_sent(options.entries(count, q.t), count, options.format(), q.rank, q.workers);
}

void GtopkSgdOptions::describe(OptionSet& o) {
  SparseOptions::describe(o);
  o.choice("putback", putback, {"conservative", "published"}, kChangesResult,
           "who owes what the tree dropped: the worker that dropped it, or, as published, its first owner unless the "
           "coordinate was applied anyway");
}

}  // namespace slipstream
