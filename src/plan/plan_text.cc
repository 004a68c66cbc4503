// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/wrap.h"
#include "plan/plan.h"

namespace slipstream {
namespace {

constexpr std::size_t kTerminal = 80;

// Four figures, and not 1.2e+03.
std::string number(double value) {
  const int decimals = value >= 999.5 ? 0 : value >= 99.95 ? 1 : value >= 9.995 ? 2 : 3;
  return fmt::format("{:.{}f}", value, decimals);
}

std::string line_of(const Prediction& p, const Prediction* dense) {
  if (!p.refused.empty()) return wrap(fmt::format("{}: {}", p.contender.text(), p.refused), kTerminal, 2) + "\n";
  const std::string ratio = dense != nullptr && dense->refused.empty() ? number(dense->step_s / p.step_s) : "";
  const std::string name = p.contender.text();
  const std::string own_line = name.size() > 22 ? name + "\n" : "";
  return own_line + fmt::format("{:<22} {:>8} {:>6} {:>6.1f} {:>6.1f} {:>6.1f} {:>8} {:>6.1f} {:>4}\n",
                                own_line.empty() ? name : "", number(1e3 * p.step_s), ratio, 100 * p.efficiency,
                                100 * p.exposed_s / p.step_s, 100 * p.hidden, number(1e-6 * p.bytes_sent), p.copies,
                                p.equal ? "yes" : "no");
}

std::string advice_line(std::string_view head, const Advice& advice) {
  return wrap(fmt::format("{}{}: {}", head, advice.strategy, advice.why), kTerminal, 2) + "\n";
}

}  // namespace

std::string plan_text(const Plan& plan) {
  const PlanProfile& p = plan.profile;
  std::string text = wrap(
      fmt::format("{} workers, {:.4g} parameters in {} tensors, a worker alone takes {:.4g} ms a step; a link carries "
                  "{:.4g} Mb/s, one way takes {:.3g} ms",
                  p.workers, p.parameter_count(), p.parameters.size(), 1e3 * p.worker_alone_s(),
                  8e-6 * p.link.bytes_per_s, 1e3 * p.link.latency_s),
      kTerminal);
  const auto head = [&text](auto... names) {
    text += fmt::format("{:<22} {:>8} {:>6} {:>6} {:>6} {:>6} {:>8} {:>6} {:>4}\n", names...);
  };
  text += "\n\n";
  head("", "step", "times", "% com-", "%", "% hid-", "MB sent", "model", "all");
  head("strategy", "ms", "ssgd", "puting", "waits", "den", "a step", "copies", "=");
  const Prediction* dense = plan.find("ssgd");
  for (const Prediction& prediction : plan.predictions) text += line_of(prediction, dense);
  text += "\n";
  if (!plan.synchronous.strategy.empty()) {
    text += advice_line("take ", plan.synchronous);
  }
  if (plan.any.strategy != plan.synchronous.strategy) text += advice_line("or, faster, ", plan.any);
  return text;
}

std::string plan_json(const std::vector<Plan>& plans) {
  auto all = nlohmann::ordered_json::array();
  for (const Plan& plan : plans) {
    const PlanProfile& p = plan.profile;
    nlohmann::ordered_json one{{"workers", p.workers},
                               {"parameters", p.parameter_count()},
                               {"tensors", p.parameters.size()},
                               {"compute_ms", 1e3 * p.compute_s},
                               {"forward_share", p.forward_share},
                               {"update_ms", 1e3 * p.update_s},
                               {"link", plan.link},
                               {"link_mbit", 8e-6 * p.link.bytes_per_s},
                               {"link_ms", 1e3 * p.link.latency_s},
                               {"io_ns_per_byte", 1e9 * p.io_s_per_byte}};
    one["strategies"] = nlohmann::ordered_json::array();
    for (const Prediction& q : plan.predictions) {
      if (!q.refused.empty()) {
        one["strategies"].push_back({{"strategy", q.contender.text()}, {"refused", q.refused}});
        continue;
      }
      one["strategies"].push_back({{"strategy", q.contender.text()},
                                   {"step_ms", 1e3 * q.step_s},
                                   {"encode_ms", 1e3 * q.encode_s},
                                   {"exposed_ms", 1e3 * q.exposed_s},
                                   {"hidden_fraction", q.hidden},
                                   {"efficiency", q.efficiency},
                                   {"bytes_sent_per_step", q.bytes_sent},
                                   {"bytes_of_busiest_port", q.bytes_busiest},
                                   {"model_copies", q.copies},
                                   {"equal_after_every_step", q.equal},
                                   {"news", q.news}});
    }
    for (const auto& [name, advice] : {std::pair{"synchronous", &plan.synchronous}, {"any", &plan.any}}) {
      one["take"][name] = {{"strategy", advice->strategy}, {"why", advice->why}};
    }
    all.push_back(std::move(one));
  }
  return all.dump(2);
}

}  // namespace slipstream
