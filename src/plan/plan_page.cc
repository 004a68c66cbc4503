// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/html.h"
#include "report/table.h"

namespace slipstream {
namespace {

using nlohmann::json;

const std::vector<Column>& columns() {
  static const std::vector<Column> all{
      {"strategy", "With the options that the planner recommends for it"},
      {"step ms", "Mean over the workers and over a whole number of the strategy's periods"},
      {"× dense", "How many times as fast as ssgd"},
      {"efficiency", "What one worker alone would take, as a share of the step"},
      {"where the time of a step goes", "Mean milliseconds per step; the four parts add up"},
      {"hidden", "Share of the time on the wire during which the worker was not blocked"},
      {"sent per step", "Bytes that one worker sends; below it those through the busiest port"},
      {"model copies", "Weights, gradients and what optimizer and strategy keep, in models of 4 bytes a parameter"},
      {"equal", "Do all workers have the same weights after every step? As seen in the simulation"},
  };
  return all;
}

double speedup(const Prediction& p, const Prediction* dense) {
  return dense != nullptr && dense->refused.empty() ? dense->step_s / p.step_s : NAN;
}

Phases phases_of(const Prediction& p, const PlanProfile& profile) {
  const double computing = p.step_s - p.encode_s - p.exposed_s, update = std::min(profile.update_s, computing);
  return {1e3 * (computing - update), 1e3 * update, 1e3 * p.encode_s, 1e3 * p.exposed_s};
}

std::string row_html(const Prediction& p, const Plan& plan) {
  const std::string head = fmt::format("<th scope=\"row\">{}</th>", escape_html(p.contender.text()));
  if (!p.refused.empty()) {
    return fmt::format("<tr>{}<td colspan=\"{}\">{}</td></tr>\n", head, columns().size() - 1, escape_html(p.refused));
  }
  const double ratio = speedup(p, plan.find("ssgd"));
  return "<tr>" + head + cell(fixed_text(1e3 * p.step_s, 1), "n") + cell(fixed_text(ratio, 2), "n") +
         cell(percent_text(p.efficiency), "n") + cell(phase_bar(phases_of(p, plan.profile)), "split") +
         cell(percent_text(p.hidden), "n") +
         cell(bytes_text(p.bytes_sent) + small(bytes_text(p.bytes_busiest) + " at the busiest"), "n") +
         cell(fixed_text(p.copies, 1), "n") + cell(p.equal ? "yes" : "no") + "</tr>\n";
}

json bar(double value) { return std::isfinite(value) ? json{value, value, value} : json(nullptr); }

json bars_of(const Prediction& p, const Prediction* dense) {
  return {{"contender", p.contender.text()},
          {"speedup", bar(speedup(p, dense))},
          {"step_ms", bar(1e3 * p.step_s)},
          {"sent", bar(1e-6 * p.bytes_sent)}};
}

std::string advice_html(const Plan& plan) {
  std::string html;
  const auto add = [&html](const char* lead, const Advice& advice) {
    html += fmt::format("<li>{} <strong>{}</strong>: {}</li>\n", lead, escape_html(advice.strategy),
                        escape_html(advice.why));
  };
  if (!plan.synchronous.strategy.empty()) add("take", plan.synchronous);
  if (plan.any.strategy != plan.synchronous.strategy) add("or, faster,", plan.any);
  return html.empty() ? "" : "<ul>" + html + "</ul>\n";
}

}  // namespace

GridPart plan_part(const std::vector<Plan>& plans) {
  std::string html;
  json data = json::array();
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = plans[i];
    const PlanProfile& profile = plan.profile;
    std::string rows;
    json drawn = json::array();
    for (const Prediction& p : plan.predictions) {
      rows += row_html(p, plan);
      if (p.refused.empty()) drawn.push_back(bars_of(p, plan.find("ssgd")));
    }
    const std::string title = fmt::format("{} worker{}, {}", profile.workers, profile.workers == 1 ? "" : "s",
                                          plan.link == "none" ? "the measured link" : plan.link);
    html += fmt::format(
        "<h3>{}</h3>\n<p>{:.4g} parameters in {} tensors; a worker alone takes {:.4g} ms a step; a link carries {:.4g} "
        "Mb/s, one way takes {:.3g} ms.</p>\n{}{}<div class=\"figures\" id=\"grid-figures-{}\"></div>\n",
        escape_html(title), profile.parameter_count(), profile.parameters.size(), 1e3 * profile.worker_alone_s(),
        8e-6 * profile.link.bytes_per_s, 1e3 * profile.link.latency_s, advice_html(plan), table(title, columns(), rows),
        i);
    data.push_back({{"rows", drawn},
                    {"quantities",
                     {{{"key", "speedup"},
                       {"title", "Speed-up over dense"},
                       {"unit", "×"},
                       {"about", "A step of ssgd over the strategy's"}},
                      {{"key", "step_ms"}, {"title", "Step time"}, {"unit", "ms"}, {"about", "Mean over the workers"}},
                      {{"key", "sent"},
                       {"title", "Sent per step"},
                       {"unit", "MB"},
                       {"about", "By one worker, mean over the workers"}}}}});
  }
  return {
      "Plan",
      "<section id=\"grid\"><h2>Predictions</h2><p>The strategies' own code ran in simulated time on a stand-in for "
      "the model. Nothing was trained: this says nothing about accuracy.</p>\n" +
          html + "</section>\n",
      data.dump(-1, ' ', true, json::error_handler_t::replace)};
}

}  // namespace slipstream
