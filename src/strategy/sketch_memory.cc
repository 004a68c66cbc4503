// SPDX-License-Identifier: Apache-2.0
#include "strategy/sketch_memory.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "base/vec.h"
#include "fabric/metered_fabric.h"
#include "strategy/finite_gradient.h"

namespace slipstream {
namespace {

constexpr std::size_t kChunk = 2048;             // floats handled at a time: v and g of a chunk share the first cache
constexpr std::size_t kLeastSample = 16384;      // coordinates whose exact sums tell what could be found
constexpr std::uint64_t kSampleStream = 3;       // of random numbers, beside a sketch's own
constexpr double kTolerance = 0.1, kStep = 1.5;  // of the recall, and of the columns

std::size_t sample_size(const SketchPlan& plan) {
  return std::min(plan.coordinates, std::max(kLeastSample, 4 * plan.k));
}

// One coordinate from each of `count` equal stretches of 0 … n-1: different ones, in ascending order.
std::vector<std::uint32_t> sample(std::size_t n, std::size_t count, std::int64_t t) {
  Rng random(static_cast<std::uint64_t>(t), kSampleStream);
  std::vector<std::uint32_t> drawn(count);
  for (std::size_t j = 0; j < count; ++j) {
    const std::size_t first = j * n / count, end = (j + 1) * n / count;
    drawn[j] = static_cast<std::uint32_t>(first + random.below(end - first));
  }
  return drawn;
}

double square(float x) { return static_cast<double>(x) * static_cast<double>(x); }

}  // namespace

SketchMemory::SketchMemory(const SketchOptions& options, const FlatModel& model, double momentum, ValueFormat format)
    : options_(options),
      plan_(options, model, format),
      shape_(plan_.shape),
      owed_(plan_.coordinates + plan_.small_count, momentum),
      small_sums_(plan_.small_count) {}

void SketchMemory::begin(Step& s) {
  s.opt.begin_step();
  owed_.begin_step();
  ahead_ = s.opt.options().nesterov ? static_cast<float>(s.opt.lr()) : 0.0F;
  SketchShape shape = shape_;
  shape.seed = static_cast<std::uint64_t>(s.t);  // coordinates that hide each other today do not tomorrow
  sketch_.emplace(shape);
}

void SketchMemory::add(Step& s, const Bucket& bucket) {
  if (!sketch_) begin(s);
  const auto inside = [&](const SketchPlan::Piece& piece) {
    return piece.flat >= bucket.offset && piece.flat < bucket.offset + bucket.count;
  };
  for (const SketchPlan::Piece& piece : plan_.small) {
    if (inside(piece)) add_small(s, piece);
  }
  for (const SketchPlan::Piece& piece : plan_.sketched) {
    if (inside(piece)) add_sketched(s, piece);
  }
}

void SketchMemory::add_small(Step& s, const SketchPlan::Piece& piece) {
  require_finite(s, piece.flat, piece.count);
  const auto g = s.model.grads().subspan(piece.flat, piece.count);
  const float factor = s.opt.direction(piece.flat, g, s.net.size());
  owed_.take_all(plan_.coordinates + piece.first, g, {.factor = factor, .ahead = ahead_});
  vec::copy(small().subspan(piece.first, piece.count), g);
}

void SketchMemory::add_sketched(Step& s, const SketchPlan::Piece& piece) {
  for (std::size_t at = 0; at < piece.count; at += kChunk) {
    const std::size_t flat = piece.flat + at, count = std::min(kChunk, piece.count - at);
    require_finite(s, flat, count);
    const auto g = s.model.grads().subspan(flat, count);
    const auto v = owed_.residual(piece.first + at, count);
    vec::add_scaled(v, g, s.opt.direction(flat, g, s.net.size()));
    if (plan_.local == plan_.coordinates) sketch_->add(piece.first + at, v);
  }
}

std::span<float> SketchMemory::table() {
  if (plan_.coordinates == 0) return {};
  if (plan_.local < plan_.coordinates) {
    select_.pick(residual(), plan_.local, largest_);
    for (std::size_t j = 0; j < largest_.indices.size(); ++j) {
      sketch_->add(largest_.indices[j], std::span(&largest_.values[j], 1));
    }
  }
  return sketch_->table();
}

const std::vector<std::uint32_t>& SketchMemory::choose(std::int64_t t) {
  chosen_.clear();
  if (plan_.coordinates == 0) return chosen_;
  chosen_ = options_.recover == "heavymix"
                ? sketch_->heavymix(plan_.coordinates, plan_.k, static_cast<std::uint64_t>(t))
                : sketch_->heaviest(plan_.coordinates, plan_.chosen);
  return chosen_;
}

// visit(j, flat index of coordinates[j]); the coordinates ascend, so the pieces are walked once.
template <typename Visit>
void SketchMemory::at_flat(std::span<const std::uint32_t> coordinates, const Visit& visit) const {
  auto piece = plan_.sketched.begin();
  for (std::size_t j = 0; j < coordinates.size(); ++j) {
    while (coordinates[j] >= piece->first + piece->count) ++piece;
    visit(j, piece->flat + (coordinates[j] - piece->first));
  }
}

void SketchMemory::leaving(const Step& s, std::span<const std::uint32_t> coordinates, std::span<float> out) {
  const auto v = residual();
  for (std::size_t j = 0; j < coordinates.size(); ++j) out[j] = owed_.share(coordinates[j]) * v[coordinates[j]];
  if (ahead_ == 0.0F) return;
  const auto g = s.model.grads();
  at_flat(coordinates,
          [&](std::size_t j, std::size_t flat) { out[j] += (1.0F - owed_.share(coordinates[j])) * ahead_ * g[flat]; });
}

void SketchMemory::apply(Step& s, const Sparse& picked, std::span<const float> sent, const Sparse& lost) {
  const auto updating = s.opt.timed();
  const auto w = s.model.weights();
  const float mean = 1.0F / static_cast<float>(s.net.size());
  s.opt.decay(0, w);
  for (const SketchPlan::Piece& piece : plan_.small) {
    vec::add_scaled(w.subspan(piece.flat, piece.count), small().subspan(piece.first, piece.count), -mean);
  }
  const auto v = owed_.residual();
  std::vector<std::uint32_t> coordinates(picked.indices.size());
  for (std::size_t j = 0; j < coordinates.size(); ++j) {
    const std::uint32_t position = picked.indices[j];
    coordinates[j] = chosen_[position];
    v[coordinates[j]] -= sent[position];
    owed_.sent(coordinates[j]);
  }
  at_flat(coordinates, [&](std::size_t j, std::size_t flat) { w[flat] -= mean * picked.values[j]; });
  for (std::size_t j = 0; j < lost.indices.size(); ++j) v[chosen_[lost.indices[j]]] += lost.values[j];
  sketch_.reset();
}

// From a sample of the coordinates, with exact sums: a table without collisions would choose those whose sketched parts
// have the largest sums, of which the exact sums pick the k largest. The recall is the energy of what was picked of the
// sample as a share of theirs: both meet the same few very large entries, or miss them.
void SketchMemory::follow_recall(Step& s, const Sparse& picked, std::size_t most) {
  if (options_.columns || shape_.identity || plan_.coordinates == 0 || !SketchPlan::looks_at_recall(s.t)) return;
  const std::vector<std::uint32_t> at = sample(plan_.coordinates, sample_size(plan_), s.t);
  const std::size_t count = at.size();
  std::vector<float> sums(2 * count);
  const auto exact = std::span(sums).first(count), sketched = std::span(sums).subspan(count);
  leaving(s, at, exact);
  const bool all = plan_.local == plan_.coordinates;
  std::size_t next = 0;
  for (std::size_t j = 0; j < count; ++j) {
    while (!all && next < largest_.indices.size() && largest_.indices[next] < at[j]) ++next;
    const bool inside = all || (next < largest_.indices.size() && largest_.indices[next] == at[j]);
    sketched[j] = inside ? residual()[at[j]] : 0.0F;
  }
  s.net.sum(sums).wait();

  const double share = static_cast<double>(count) / static_cast<double>(plan_.coordinates);
  const auto of = [&](std::size_t n) {
    return std::clamp<std::size_t>(static_cast<std::size_t>(std::lround(share * static_cast<double>(n))), 1, count);
  };
  Sparse candidates, best;
  select_.pick(sketched, of(plan_.chosen), candidates);
  std::vector<float> values;
  for (const std::uint32_t j : candidates.indices) values.push_back(exact[j]);
  select_.pick(values, std::min(of(plan_.k), values.size()), best);
  double could = 0, did = 0;
  for (const float x : best.values) could += square(x);
  std::size_t pick = 0;
  for (std::size_t j = 0; j < count; ++j) {
    while (pick < picked.indices.size() && chosen_[picked.indices[pick]] < at[j]) ++pick;
    if (pick < picked.indices.size() && chosen_[picked.indices[pick]] == at[j]) did += square(exact[j]);
  }
  recall_ = could > 0 ? did / could : 1.0;

  double columns = static_cast<double>(shape_.columns);
  if (recall_ < (1 - kTolerance) * options_.recall) columns *= kStep;
  if (recall_ > (1 + kTolerance) * options_.recall) columns /= kStep;
  const std::size_t blocks = static_cast<std::size_t>(columns) / sketch::kBlock * sketch::kBlock;
  shape_ = plan_.with_columns(std::clamp(blocks, plan_.least_columns, std::max(most, plan_.least_columns)));
}

double SketchMemory::recall_bytes(const SketchPlan& plan, int workers) {
  return MeteredFabric::sum_bytes(2 * sample_size(plan), workers);
}

void SketchMemory::visit(StateVisitor& v) {
  owed_.visit(v);
  auto columns = static_cast<std::int64_t>(shape_.columns);
  v.integer("columns", columns);
  if (!shape_.identity) shape_ = plan_.with_columns(static_cast<std::size_t>(columns));
}

}  // namespace slipstream
