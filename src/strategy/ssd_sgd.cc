// SPDX-License-Identifier: Apache-2.0
#include "strategy/ssd_sgd.h"

#include <slipstream/base/error.h>

#include <utility>

#include "base/vec.h"
#include "base/visit_real.h"
#include "strategy/server_parts.h"

namespace slipstream {

SsdSgd::SsdSgd(const Options& options)
    : options_(options),
      warmup_{options.warmup()},
      pull_{options.period},
      outgoing_(static_cast<std::size_t>(options.max_outstanding_pushes) + 1) {}

void SsdSgd::on_start(Step& s) {
  OptimizerOptions optimizer = s.opt.options();
  if (options_.accumulate_push) {
    if (optimizer.kind != "sgd") {
      fail<ConfigError>("accumulate_push adds gradients up, which {} cannot use; set optimizer=sgd", optimizer.kind);
    }
    optimizer.weight_decay = 0.0;  // workers add it to what they push: a server that sees a period's sum cannot
    for (ParameterGroup& group : optimizer.groups) group.weight_decay.reset();
  }
  // One worker's own gradient is the global one, and Adam's steps show no gradient: both do without an estimate.
  const bool estimates = options_.local == "glu" && s.net.size() > 1 && optimizer.kind == "sgd";
  local_ = LocalStep(estimates ? options_.glu_mix : 0.0, s.model.weights(), s.net.size());
  pulled_.resize(s.model.count());
  for (auto& buffer : outgoing_) buffer.resize(s.model.count());
  servers_.open(s.net, bucket_parts(s.model, s.buckets, s.net.servers().count), ServerSetup::Apply::kMean, false,
                optimizer, s.opt.groups(), s.model.weights());  // (7)
}

void SsdSgd::on_bucket_ready(Step& s, const Bucket& bucket) {
  const auto [first, last] = servers_.parts_in(bucket.offset, bucket.count);
  if (warmup_.active(s.t)) {
    if (options_.accumulate_push) add_decay(s, bucket, s.model.grads(bucket), 1.0);
    for (std::size_t p = first; p < last; ++p) {
      const ServerPart& part = servers_.parts()[p];
      servers_.push_pull(p, part.of(s.model.grads()), s.opt.lr(), part.of(pulled_));
    }
    return;
  }
  fill_outgoing(s, bucket);
  if (!options_.accumulate_push || pulls(s.t)) push(s, first, last);  // (1)
}

void SsdSgd::on_step(Step& s) {
  if (warmup_.active(s.t)) {
    servers_.wait();
    local_.follow(s.opt, s.model.weights(), s.model.grads(), pulled_);  // (2)
    return;
  }
  if (pending_ != 0) adopt(s);                                                             // (3)
  local_.step(s.opt, s.model.weights(), s.model.grads(), options_.local_lr * s.opt.lr());  // (4)
  rates_ += s.opt.lr();
  if (!options_.accumulate_push || pulls(s.t)) {
    servers_.ask_round();
    servers_.wait_rounds(static_cast<std::size_t>(options_.max_outstanding_pushes));  // (5)
  }
  if (!pulls(s.t)) return;
  for (std::size_t p = 0; p < servers_.parts().size(); ++p) servers_.pull(p, servers_.parts()[p].of(pulled_));  // (6)
  pulled_rates_ = std::exchange(rates_, 0.0);
  pending_ = 1;
  if (options_.pull == "blocking") adopt(s);
}

// What is on its way is left behind: everybody takes the weights that hold all gradients.
void SsdSgd::on_finish(Step& s) {
  servers_.wait();
  const bool unsent = options_.accumulate_push && s.t > warmup_.steps && !pulls(s.t - 1);
  for (std::size_t p = 0; unsent && p < servers_.parts().size(); ++p) {
    servers_.push(p, servers_.parts()[p].of(outgoing(s.t - 1)), period_lr_);
  }
  for (std::size_t p = 0; p < servers_.parts().size(); ++p) servers_.pull(p, servers_.parts()[p].of(pulled_));
  servers_.wait();
  servers_.wait_rounds(0);
  vec::copy(s.model.weights(), pulled_);
}

void SsdSgd::adopt(Step& s) {
  servers_.wait();
  local_.adopt(s.opt, pulled_, pulled_rates_);
  vec::copy(s.model.weights(), pulled_);
  pending_ = 0;
}

std::span<float> SsdSgd::outgoing(std::int64_t t) {
  const std::int64_t round = options_.accumulate_push ? (t - warmup_.steps) / options_.period : t;
  return outgoing_[static_cast<std::size_t>(round) % outgoing_.size()];
}

// The next backward writes new gradients: those of this step are pushed from a copy. Accumulated ones are weighted with
// their learning rates, as multiples of the period's first, with which their sum is pushed.
void SsdSgd::fill_outgoing(Step& s, const Bucket& bucket) {
  const auto out = outgoing(s.t).subspan(bucket.offset, bucket.count);
  if (!options_.accumulate_push) {
    vec::copy(out, s.model.grads(bucket));
    return;
  }
  if ((s.t - warmup_.steps) % options_.period == 0) {
    period_lr_ = s.opt.lr() > 0.0 ? s.opt.lr() : 1.0;
    vec::zero(out);
  }
  const double share = s.opt.lr() / period_lr_;
  vec::add_scaled(out, s.model.grads(bucket), static_cast<float>(share));
  add_decay(s, bucket, out, share);
}

void SsdSgd::add_decay(Step& s, const Bucket& bucket, std::span<float> out, double share) {
  s.opt.groups().each(bucket.offset, bucket.count, [&](std::size_t at, std::size_t count, int group) {
    const double decay = share * s.opt.options().decay(group);
    if (decay == 0.0) return;
    vec::add_scaled(out.subspan(at - bucket.offset, count), s.model.weights().subspan(at, count),
                    static_cast<float>(decay));
  });
}

void SsdSgd::push(Step& s, std::size_t first, std::size_t last) {
  const double lr = options_.accumulate_push ? period_lr_ : s.opt.lr();
  for (std::size_t p = first; p < last; ++p) servers_.push(p, servers_.parts()[p].of(outgoing(s.t)), lr);
}

void SsdSgd::visit(StateVisitor& v) {
  servers_.wait();  // a pull that is under way is saved as pulled, and adopted later
  servers_.visit(v);
  local_.visit(v);
  v.floats("pulled", pulled_);
  v.integer("pending", pending_);
  visit_real(v, "rates", rates_);
  visit_real(v, "pulled_rates", pulled_rates_);
  visit_real(v, "period_lr", period_lr_);
  if (!options_.accumulate_push) return;
  for (std::size_t i = 0; i < outgoing_.size(); ++i) v.floats(fmt::format("outgoing{}", i), outgoing_[i]);
}

BucketRule SsdSgd::buckets() const { return server_buckets(); }

double SsdSgd::bytes_sent(const Options& options, const TrafficQuery& q) {
  const auto parts = bucket_parts(q);
  if (Warmup{options.warmup()}.active(q.t)) return message_bytes(parts, q, true);
  const bool pulls = Every{options.period}.sends(q.t - options.warmup());
  double bytes = pulls ? message_bytes(parts, q, false) : 0.0;
  if (!options.accumulate_push || pulls) {
    bytes += message_bytes(parts, q, true);
    for (int server = 0; server < servers_of(q); ++server) bytes += beside(q, server) ? 0.0 : ServerClient::kHeadBytes;
  }
  return bytes;
}

void SsdSgdOptions::describe(OptionSet& o) {
  o.integer("period", period, {1, 1'000'000}, kChangesResult, "steps between two pulls (k)");
  o.integer_or_auto("warmup_steps", warmup_steps, {0, 1'000'000'000}, kChangesResult,
                    "synchronous steps at the start; auto: five periods; the paper's runs have 500");
  o.choice("pull", pull, {"overlapped", "blocking"}, kChangesResult,
           "overlapped: the weights arrive during the next step and count from its end; blocking: wait for them");
  o.choice(
      "local", local, {"glu", "plain"}, kChangesResult,
      "the local update, by the servers' rule: of the own gradient with some of the last period's global one, or of "
      "the own gradient only");
  o.real("glu_mix", glu_mix, {0.0, 0.5}, kChangesResult,
         "local=glu: share of the global gradient; from 0.2 on, momentum of 0.9 oscillates at usual rates");
  o.real("local_lr", local_lr, {0.0, 1000.0}, kChangesResult, "local learning rate, as a multiple of the servers'");
  o.boolean("accumulate_push", accumulate_push, kChangesResult,
            "push the sum of a period's gradients once: 2/(k+1) of the traffic; without momentum the same trajectory");
  o.integer("max_outstanding_pushes", max_outstanding_pushes, {1, 64}, kChangesSpeed,
            "pushes a worker may be ahead of the slowest; each takes memory of the model's size");
}

}  // namespace slipstream
