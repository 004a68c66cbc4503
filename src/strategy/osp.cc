// SPDX-License-Identifier: Apache-2.0
#include "strategy/osp.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cctype>

#include "base/vec.h"
#include "base/visit_real.h"
#include "strategy/server_parts.h"

namespace slipstream {
namespace {

constexpr std::int64_t kProbedSteps = 3;  // these push after backward, so that the wire's rate can be measured
constexpr std::size_t kSmallShare = 1000;

Guess::Kind guess_kind(const std::string& lgp, const OptimizerOptions& optimizer) {
  const bool sgd = optimizer.kind == "sgd";
  if (!sgd && lgp != "auto" && lgp != "off") {
    fail<ConfigError>("lgp={} guesses by the rule of sgd; use lgp=auto, which mirrors {}, or optimizer=sgd", lgp,
                      optimizer.kind);
  }
  if (lgp == "off" || !sgd) return Guess::Kind::kOff;
  return lgp == "plain" ? Guess::Kind::kPlain : Guess::Kind::kMomentum;
}

bool is_small_or_norm(const Slot& slot, std::size_t model) {
  std::string name = slot.name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return slot.count * kSmallShare < model || name.find("bn") != std::string::npos ||
         name.find("norm") != std::string::npos;
}

double bytes_of(const ServerPart& part) { return static_cast<double>(part.count * sizeof(float)); }

}  // namespace

void Osp::on_start(Step& s) {
  const OptimizerOptions& optimizer = s.opt.options();
  guess_ = Guess(guess_kind(options_.lgp, optimizer), optimizer, s.model.weights(), s.opt.groups());
  if (optimizer.kind != "sgd" && options_.lgp == "auto" && (options_.cap > 0.0 || given_split_)) {
    mirror_ = make_optimizer(optimizer, s.model.count(), OptimizerUse::kSteps, s.opt.groups());
  }
  servers_.open(s.net, plan(options_, s.model, s.net.servers().count), ServerSetup::Apply::kMean, true, optimizer,
                s.opt.groups(), s.model.weights());  // (7)
  for (const ServerPart& part : parts()) {
    pinned_.push_back(is_small_or_norm(s.model.slot_at(part.offset), s.model.count()));
  }
  in_u_.assign(parts().size(), false);
  under_way_ = in_u_;
  if (given_split_) in_u_ = given_split_(s.t, parts().size());
  budget_ = IcsBudget(options_.budget == "loss" ? IcsBudget::Rule::kLoss : IcsBudget::Rule::kMeasured,
                      options_.cap * static_cast<double>(s.model.count() * sizeof(float)));
  meter_.emplace(s.net.clock());
  outgoing_.resize(s.model.count());
  pulled_.resize(s.model.count());
}

void Osp::on_bucket_ready(Step& s, const Bucket& bucket) {
  if (probes(s.t)) return;
  const auto [first, last] = servers_.parts_in(bucket.offset, bucket.count);
  for (std::size_t p = first; p < last; ++p) {
    if (!in_u_[p] && !under_way_[p]) push_urgent(s, p);  // (1)
  }
}

void Osp::on_step(Step& s) {
  const double lr = s.opt.lr();
  meter_->backward_done(s.loss);
  meter_->joins([this] { servers_.wait(kBackground); });  // (2)
  learn_overlapped();

  meter_->exchange_begins();
  for (std::size_t p = 0; p < parts().size(); ++p) {
    if (!in_u_[p] && (under_way_[p] || probes(s.t))) push_urgent(s, p);
  }
  guess_overlapped(s);  // (4) while the important parts are on their way
  const bool moves_on = given_split_ || splits(options_, s.t);
  servers_.wait(kUrgent, [&](std::size_t p) {
    const ServerPart& part = parts()[p];
    guess_.learn(part.offset, part.of(pulled_), lr, moves_on);
    vec::copy(part.of(s.model.weights()), part.of(pulled_));
  });  // (3)
  if (probes(s.t)) meter_->exchange_ended(4.0 * static_cast<double>(s.model.count()));
  double overlapped_bytes = 0.0;
  for (std::size_t p = 0; p < parts().size(); ++p) {
    if (!in_u_[p]) continue;
    const ServerPart& part = parts()[p];
    servers_.push_pull(p, part.of(outgoing_), lr, part.of(pulled_), 0, kBackground);  // (5)
    overlapped_bytes += bytes_of(part);
  }
  meter_->overlaps(overlapped_bytes);
  under_way_ = in_u_;
  last_lr_ = lr;
  if (given_split_) {
    in_u_ = given_split_(s.t + 1, parts().size());
  } else if (splits(options_, s.t)) {
    choose_split(s);  // (6)
  }
  meter_->step_done();
}

void Osp::on_finish(Step& s) {
  servers_.wait(kBackground);
  learn_overlapped();
  vec::copy(s.model.weights(), guess_.known());
}

void Osp::push_urgent(Step& s, std::size_t p) {
  const ServerPart& part = parts()[p];
  servers_.push_pull(p, part.of(s.model.grads()), s.opt.lr(), part.of(pulled_));
}

void Osp::learn_overlapped() {
  for (std::size_t p = 0; p < parts().size(); ++p) {
    if (under_way_[p]) guess_.learn(parts()[p].offset, parts()[p].of(pulled_), last_lr_);
  }
}

// Adam's moments are gathered in every step, from the own gradients of all parts, with a P-th of their squares in the
// variance, as the servers' mean has it: the important parts' weights are replaced when they arrive.
void Osp::guess_overlapped(Step& s) {
  const auto timed = s.opt.timed();
  for (std::size_t p = 0; p < parts().size(); ++p) {
    if (!in_u_[p]) continue;
    const ServerPart& part = parts()[p];
    guess_.predict(part.offset, part.of(s.model.grads()), s.opt.lr(), part.of(s.model.weights()));
    vec::copy(part.of(outgoing_), part.of(s.model.grads()));  // the next backward writes new ones
  }
  if (mirror_ == nullptr) return;
  mirror_->set_lr(s.opt.lr());
  mirror_->step(s.model.weights(), s.model.grads(), 1.0F, s.net.size());
}

// The first one, right after the steps that measure the wire, notes the first loss; nothing is overlapped yet.
bool Osp::splits(const Options& options, std::int64_t t) {
  return options.cap > 0.0 && (t == kProbedSteps - 1 || Every{options.resplit_every}.sends(t));
}

bool Osp::probes(std::int64_t t) const { return t < kProbedSteps && options_.cap > 0.0 && !given_split_; }

void Osp::choose_split(Step& s) {
  const std::vector<IcsMeasure> all = meter_->agree(s.net);
  if (meter_->overlapped_bytes() > 0.0) {  // the same text on all ranks
    double waited_s = 0.0, fastest = 0.0;
    for (const IcsMeasure& one : all) {
      waited_s = std::max(waited_s, one.exposed_s);
      fastest = std::max(fastest, one.bytes_per_s);
    }
    news_ = fmt::format("waited {:.1f} ms a step for overlapped traffic of about {:.1f} ms", 1e3 * waited_s,
                        fastest > 0.0 ? 1e3 * meter_->overlapped_bytes() / fastest : 0.0);
  }

  std::vector<IcsCandidate> candidates;
  for (std::size_t p = 0; p < parts().size(); ++p) {
    candidates.push_back({bytes_of(parts()[p]), servers_.score(p), pinned_[p]});
  }
  const auto chosen = select_ics(candidates, budget_.update(all));
  if (chosen == in_u_) return;
  in_u_ = chosen;
  double bytes = 0.0;
  for (std::size_t p = 0; p < parts().size(); ++p) bytes += in_u_[p] ? candidates[p].bytes : 0.0;
  news_ += news_.empty() ? "" : "; ";
  news_ += fmt::format("overlaps {} of {} parts, {:.2f} of {:.2f} MB (budget {:.2f} MB{})",
                       std::count(in_u_.begin(), in_u_.end(), true), parts().size(), 1e-6 * bytes,
                       4e-6 * static_cast<double>(s.model.count()), 1e-6 * budget_.bytes(),
                       options_.budget == "loss" ? fmt::format(", ramp {:.2f}", budget_.ramp()) : "");
  news_ += ":" + describe_split(s.model);
}

// By layer, in the order of backward; a layer may be cut into several parts.
std::string Osp::describe_split(const FlatModel& model) const {
  std::string text;
  for (std::size_t end = parts().size(); end > 0;) {
    const Slot& slot = model.slot_at(parts()[end - 1].offset);
    std::size_t first = end;
    while (first > 0 && parts()[first - 1].offset >= slot.offset) --first;
    const auto overlapped = std::count(in_u_.begin() + static_cast<std::ptrdiff_t>(first),
                                       in_u_.begin() + static_cast<std::ptrdiff_t>(end), true);
    const auto all = static_cast<std::ptrdiff_t>(end - first);
    text += fmt::format(" [{}: {}]", slot.name,
                        overlapped == 0     ? (pinned_[first] ? "in the step, always" : "in the step")
                        : overlapped == all ? "overlapped"
                                            : fmt::format("overlapped, {} of {} parts", overlapped, all));
    end = first;
  }
  return text;
}

void Osp::visit(StateVisitor& v) {
  servers_.wait(kBackground);  // what is under way is saved as pulled, and joined later
  servers_.visit(v);
  guess_.visit(v);
  if (mirror_) mirror_->visit(v);
  budget_.visit(v);
  v.floats("pulled", pulled_);
  for (auto* flags : {&in_u_, &under_way_}) {
    std::vector<float> values(flags->begin(), flags->end());
    v.floats(flags == &in_u_ ? "in_u" : "under_way", values);
    std::transform(values.begin(), values.end(), flags->begin(), [](float value) { return value != 0.0F; });
  }
  visit_real(v, "last_lr", last_lr_);
  meter_->visit(v);
}

std::vector<ServerPart> Osp::plan(const Options& options, const FlatModel& model, int servers) {
  std::vector<std::size_t> cuts;
  for (const Slot& slot : model.slots()) cuts.push_back(slot.offset);
  cuts.push_back(model.count());
  return ServerClient::plan(cuts, servers, static_cast<std::size_t>(options.block_bytes));
}

BucketRule Osp::buckets() const { return server_buckets(); }

// The split's own small gather comes on top, every resplit_every steps.
double Osp::bytes_sent(const Options& options, const TrafficQuery& q) {
  const double gathered = splits(options, q.t) ? static_cast<double>(sizeof(IcsMeasure)) * (q.workers - 1) : 0.0;
  return message_bytes(plan(options, q.model, servers_of(q)), q, true) + gathered;
}

void OspOptions::describe(OptionSet& o) {
  o.real("cap", cap, {0.0, 1.0}, kChangesResult, "largest share of the model that is overlapped; 0 is bsp");
  o.integer("block_bytes", block_bytes, {4, std::int64_t{1} << 30}, kChangesResult,
            "tensors above this are cut into blocks that are weighed and moved by themselves");
  o.choice(
      "budget", budget, {"loss", "measured"}, kChangesResult,
      "bytes to overlap: what the wire carries during a computation, growing as the loss falls; or grow while that "
      "stays hidden and shrink when it does not");
  o.choice("lgp", lgp, {"auto", "off", "plain", "momentum"}, kChangesResult,
           "guess overlapped weights with the own gradient: not at all, without or with momentum; auto mirrors the "
           "optimizer");
  o.integer("resplit_every", resplit_every, {1, 1'000'000}, kChangesResult, "steps between two decisions");
}

}  // namespace slipstream
