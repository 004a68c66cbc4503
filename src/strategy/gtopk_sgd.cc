// SPDX-License-Identifier: Apache-2.0
#include "strategy/gtopk_sgd.h"

#include <algorithm>

#include "base/vec.h"
#include "strategy/finite_gradient.h"

namespace slipstream {

void GtopkSgd::on_step(Step& s) {
  const auto grads = s.model.grads();
  if (grads.empty()) return;
  require_finite(s, 0, grads.size());
  owed_->take(0, grads, 1.0F, 0.0F, options_.entries(grads.size()), own_);  // (1) (2)
  Sparse global = own_;
  tree_.reduce(s.net, global, grads.size(), dropped_);  // (3) (4)
  put_back(own_, global);                               // (5)
  vec::zero(grads);
  for (std::size_t j = 0; j < global.indices.size(); ++j) grads[global.indices[j]] = global.values[j];
  s.opt.step(s.model.weights(), grads, 1.0F / static_cast<float>(s.net.size()));  // (6)
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

std::size_t GtopkSgdOptions::entries(std::size_t count) const {
  const auto wanted = static_cast<std::size_t>(density * static_cast<double>(count));
  return std::min(count, std::max<std::size_t>(1, wanted));
}

double GtopkSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  const std::size_t count = q.model.count();
  return count == 0 ? 0 : SparseTree::bytes_sent(options.entries(count), count, q.rank, q.workers);
}

void GtopkSgdOptions::describe(OptionSet& o) {
  o.real("density", density, {1e-6, 1.0}, kChangesResult,
         "share of the entries that a worker sends, and that all apply, in a step");
  o.choice("putback", putback, {"conservative", "published"}, kChangesResult,
           "who owes what the tree dropped: the worker that dropped it, or, as published, its first owner unless the "
           "coordinate was applied anyway");
}

}  // namespace slipstream
