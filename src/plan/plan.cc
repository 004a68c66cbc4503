// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <array>
#include <map>

namespace slipstream {
namespace {

constexpr double kAsFast = 1.03;   // for options
constexpr double kWorthIt = 1.05;  // for strategies

// In order of how little a strategy changes training. Strategies not listed come last, in the registry's order.
constexpr std::array kPreference{"ssgd", "bsp", "lags",  "powersgd", "gs",    "topk",          "gtopk",
                                 "osp",  "ssd", "dasgd", "cocod",    "local", "overlap-local", "streaming-diloco"};

// From the mildest value to the strongest; the default is among them.
const std::map<std::string, std::vector<std::string>, std::less<>>& dials() {
  static const std::map<std::string, std::vector<std::string>, std::less<>> all{
      {"topk", {"", "density=0.002"}},
      {"gs", {"", "density=0.005"}},
      {"powersgd", {"rank=4", "", "rank=1"}},
      {"dasgd", {"", "period=16", "period=64"}},
      {"cocod", {"", "period=16", "period=64"}},
      {"local", {"", "period=16", "period=64"}},
      {"ssd", {"", "period=16"}},
      {"overlap-local", {"", "period=16", "period=64"}},
  };
  return all;
}

std::size_t preference(const std::string& name) {
  return static_cast<std::size_t>(std::find(kPreference.begin(), kPreference.end(), name) - kPreference.begin());
}

Prediction with_dial(Predictor& predictor, const Contender& contender, const PlanRequest& request) {
  const auto found = dials().find(contender.name);
  const bool given = !contender.set.empty() || !request.dials || found == dials().end();
  std::vector<Prediction> tried;
  for (const std::string& value : given ? std::vector<std::string>{""} : found->second) {
    Contender one = contender;
    if (!value.empty()) one.set.push_back(value);
    if (request.on_begin) request.on_begin(one.text());
    tried.push_back(predictor.predict(one));
  }
  const Prediction first = tried.front();
  std::erase_if(tried, [](const Prediction& p) { return !p.refused.empty(); });
  if (tried.empty()) return first;
  const auto fastest =
      std::min_element(tried.begin(), tried.end(), [](const auto& a, const auto& b) { return a.step_s < b.step_s; });
  const double limit = kAsFast * fastest->step_s;
  return *std::find_if(tried.begin(), tried.end(), [&](const Prediction& p) { return p.step_s <= limit; });
}

std::string reason(const Prediction& p, const Prediction* dense, const PlanProfile& profile, bool equal_only) {
  const double computing = 100 * std::min(1.0, p.efficiency);
  if (profile.workers == 1) return "a worker alone has nobody to wait for";
  if (p.contender.name == "ssgd" && p.contender.set.empty()) {
    return fmt::format("{:.0f} % of a step is computing: {} is faster by 5 % or more", computing,
                       equal_only ? "none of those whose workers stay equal" : "no strategy");
  }
  std::string text = fmt::format("{:.4g} ms a step", 1e3 * p.step_s);
  if (dense != nullptr && dense->refused.empty()) {
    text += fmt::format(", {:.3g} times as fast as ssgd with {:.2g} % of its bytes", dense->step_s / p.step_s,
                        100 * p.bytes_sent / std::max(1.0, dense->bytes_sent));
  }
  text += fmt::format("; {:.0f} % of it is computing and {:.0f} % of the time on the wire is hidden; ", computing,
                      100 * p.hidden);
  text += p.equal ? "all workers have equal weights after every step"
                  : "workers' weights differ, or are late, between averages: look at the accuracy as well";
  return text;
}

Advice advise(const std::vector<Prediction>& all, const PlanProfile& profile, bool equal_only) {
  const Prediction *fastest = nullptr, *best = nullptr, *dense = nullptr;
  const auto fits = [&](const Prediction& p) { return p.refused.empty() && (p.equal || !equal_only); };
  for (const Prediction& p : all) {
    if (p.contender.text() == "ssgd") dense = &p;
    if (fits(p) && (fastest == nullptr || p.step_s < fastest->step_s)) fastest = &p;
  }
  if (fastest == nullptr) return {};
  for (const Prediction& p : all) {
    if (!fits(p) || p.step_s > kWorthIt * fastest->step_s) continue;
    if (best == nullptr || preference(p.contender.name) < preference(best->contender.name)) best = &p;
  }
  return {best->contender.text(), reason(*best, dense, profile, equal_only)};
}

}  // namespace

const Prediction* Plan::find(std::string_view name) const {
  const auto found = std::find_if(predictions.begin(), predictions.end(),
                                  [name](const Prediction& p) { return p.contender.name == name; });
  return found == predictions.end() ? nullptr : &*found;
}

Plan make_plan(const PlanProfile& profile, const PlanRequest& request, const Registry& registry) {
  std::vector<Contender> contenders;
  for (const std::string& text : request.strategies) contenders.push_back(Contender::parse(text));
  if (contenders.empty()) {
    for (const StrategyInfo& info : registry.all()) {
      if (info.name != "auto") contenders.push_back({info.name, {}});  // auto would plan, too
      if (info.name == "ssgd") contenders.push_back({info.name, {"wire=bf16"}});
    }
  }
  for (const Contender& one : contenders) registry.configure(one.name, one.set);
  Predictor predictor(profile, registry);
  Plan plan{.profile = profile};
  for (const Contender& one : contenders) plan.predictions.push_back(with_dial(predictor, one, request));
  plan.synchronous = advise(plan.predictions, profile, true);
  plan.any = advise(plan.predictions, profile, false);
  const auto step_s = [&plan](const Advice& advice) {
    const auto p = std::find_if(plan.predictions.begin(), plan.predictions.end(),
                                [&](const Prediction& q) { return q.contender.text() == advice.strategy; });
    return p == plan.predictions.end() ? 0.0 : p->step_s;
  };
  if (!plan.synchronous.strategy.empty() && kWorthIt * step_s(plan.any) > step_s(plan.synchronous)) {
    plan.any = plan.synchronous;
  }
  return plan;
}

}  // namespace slipstream
