// SPDX-License-Identifier: Apache-2.0
#include "strategy/power_sgd.h"

#include <slipstream/base/error.h>

#include <cmath>

#include "base/rng.h"
#include "base/vec.h"
#include "fabric/metered_fabric.h"
#include "schedule/warmup.h"

namespace slipstream {
namespace {

std::span<float> row(std::vector<float>& values, std::size_t at, std::size_t length, std::size_t index) {
  return std::span(values).subspan(at + index * length, length);
}

// Gram-Schmidt on r rows of `length`. A row that depends on those before it becomes 0.
void orthonormalise(std::vector<float>& values, std::size_t at, std::size_t length, std::size_t r) {
  for (std::size_t j = 0; j < r; ++j) {
    const auto own = row(values, at, length, j);
    const double before = vec::sum_of_squares(own);
    for (std::size_t i = 0; i < j; ++i) {
      const auto other = row(values, at, length, i);
      vec::add_scaled(own, other, -static_cast<float>(vec::dot(own, other)));
    }
    const double left = vec::sum_of_squares(own);
    constexpr double kRounding = 1e-12;  // of squares: what is left of a dependent row is noise
    vec::scale(own, left > kRounding * before ? static_cast<float>(1.0 / std::sqrt(left)) : 0.0F);
  }
}

}  // namespace

void PowerSgdOptions::describe(OptionSet& o) {
  o.integer("rank", rank, {1, 1024}, kChangesResult, "columns of the factors: more of them, more bytes, less error");
  o.real("min_shrink", min_shrink, {1, 1e9}, kChangesResult, "matrices that shrink by less are sent as they are");
  o.integer("warmup_steps", warmup_steps, {0, 1'000'000'000}, kChangesResult,
            "first steps in which everything is sent as it is");
}

PowerSgd::Message PowerSgd::lay_out(const Options& options, const FlatModel& model, const Bucket& bucket) {
  const auto r = static_cast<std::size_t>(options.rank);
  Message message;
  std::size_t left = 0, right = 0;
  for (std::size_t i = bucket.first_slot; i < bucket.end_slot; ++i) {
    const Slot& slot = model.slots()[i];
    Tensor tensor{slot.offset, slot.count, slot.rows, slot.count / slot.rows, left, right, false};
    const auto factors = static_cast<double>(r * (tensor.rows + tensor.columns));
    tensor.small = static_cast<double>(slot.count) < options.min_shrink * factors;
    left += tensor.small ? tensor.count : r * tensor.rows;
    right += tensor.small ? 0 : r * tensor.columns;
    message.tensors.push_back(tensor);
  }
  message.left.resize(left);
  message.right.resize(right);
  return message;
}

void PowerSgd::on_start(Step& s) {
  r_ = static_cast<std::size_t>(options_.rank);
  owed_.resize(s.model.count());
  for (const Bucket& bucket : s.buckets) {
    messages_.push_back(lay_out(options_, s.model, bucket));
    draw_vanished(messages_.back(), 0);
  }
}

// A direction that no worker's gradient had any part in would stay 0 for ever: it is drawn anew. All ranks see the
// same.
void PowerSgd::draw_vanished(Message& message, std::uint64_t t) {
  for (const Tensor& m : message.tensors) {
    for (std::size_t j = 0; j < r_ && !m.small; ++j) {
      const auto b = row(message.right, m.at_b, m.columns, j);
      if (vec::sum_of_squares(b) > 0) continue;
      Rng rng(t, m.offset, j);
      for (float& x : b) x = static_cast<float>(rng.normal());
    }
  }
}

void PowerSgd::on_bucket_ready(Step& s, const Bucket& bucket) {
  if (Warmup{options_.warmup_steps}.active(s.t)) {
    messages_[static_cast<std::size_t>(bucket.index)].sum = s.net.sum(s.model.grads(bucket));
    return;
  }
  Message& message = messages_[static_cast<std::size_t>(bucket.index)];
  for (const Tensor& m : message.tensors) {
    const auto g = s.model.grads().subspan(m.offset, m.count);
    if (m.small) {
      vec::copy(row(message.left, m.at_a, m.count, 0), g);
      continue;
    }
    for (std::size_t i = 0; i < m.rows; ++i) {
      const auto owed = row(owed_, m.offset, m.columns, i);
      vec::add(owed, g.subspan(i * m.columns, m.columns));  // (1)
      for (std::size_t j = 0; j < r_; ++j) {
        message.left[m.at_a + j * m.rows + i] =
            static_cast<float>(vec::dot(owed, row(message.right, m.at_b, m.columns, j)));  // (2)
      }
    }
  }
  message.sum = s.net.sum(message.left);  // (3)
}

void PowerSgd::on_step(Step& s) {
  const float mean = 1.0F / static_cast<float>(s.net.size());
  if (Warmup{options_.warmup_steps}.active(s.t)) {
    for (Message& message : messages_) message.sum.wait();
    s.opt.step(s.model.weights(), s.model.grads(), mean);
    return;
  }
  for (Message& message : messages_) {
    message.sum.wait();
    vec::zero(message.right);
    for (const Tensor& m : message.tensors) {
      if (m.small) continue;
      orthonormalise(message.left, m.at_a, m.rows, r_);  // (4)
      for (std::size_t i = 0; i < m.rows; ++i) {
        for (std::size_t j = 0; j < r_; ++j) {
          vec::add_scaled(row(message.right, m.at_b, m.columns, j), row(owed_, m.offset, m.columns, i),
                          message.left[m.at_a + j * m.rows + i]);
        }
      }
    }
    message.sum = s.net.sum(message.right);  // (5)
  }
  for (Message& message : messages_) {
    message.sum.wait();
    for (const Tensor& m : message.tensors) {
      const auto g = s.model.grads().subspan(m.offset, m.count);
      if (m.small) {
        vec::copy(g, row(message.left, m.at_a, m.count, 0));
        continue;
      }
      vec::zero(g);
      for (std::size_t i = 0; i < m.rows; ++i) {
        const auto low_rank = g.subspan(i * m.columns, m.columns);
        for (std::size_t j = 0; j < r_; ++j) {
          vec::add_scaled(low_rank, row(message.right, m.at_b, m.columns, j), message.left[m.at_a + j * m.rows + i]);
        }
        vec::add_scaled(row(owed_, m.offset, m.columns, i), low_rank, -mean);  // (6)
      }
    }
    draw_vanished(message, static_cast<std::uint64_t>(s.t) + 1);
  }
  s.opt.step(s.model.weights(), s.model.grads(), mean);  // (7)
}

void PowerSgd::visit(StateVisitor& v) {
  v.floats("residual", owed_);
  for (std::size_t i = 0; i < messages_.size(); ++i) v.floats(fmt::format("right factors {}", i), messages_[i].right);
}

double PowerSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  if (Warmup{options.warmup_steps}.active(q.t)) return MeteredFabric::sum_bytes(q.model.count(), q.workers);
  double bytes = 0;
  for (const Bucket& bucket : plan_buckets(q.model, PowerSgd(options).buckets())) {
    const Message message = lay_out(options, q.model, bucket);
    bytes += MeteredFabric::sum_bytes(message.left.size(), q.workers) +
             MeteredFabric::sum_bytes(message.right.size(), q.workers);
  }
  return bytes;
}

}  // namespace slipstream
