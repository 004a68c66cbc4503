// SPDX-License-Identifier: Apache-2.0
#include "watch/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

namespace slipstream {
namespace {

std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? "\\n" : std::string(1, c);
  }
  return text;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

class Text {
 public:
  explicit Text(const LiveRun::Figures& f)
      : labels_(fmt::format(R"(run="{}",strategy="{}",model="{}",task="{}")", escaped(f.name), escaped(f.strategy),
                            escaped(f.model), escaped(f.task))) {}

  void family(const char* type, const char* name, const char* help) {
    name_ = name;
    text_ += fmt::format("# HELP slipstream_{} {}\n# TYPE slipstream_{} {}\n", name, help, name, type);
  }
  void value(double value, const std::string& label = "") {
    text_ += fmt::format("slipstream_{}{{{}{}}} {}\n", name_, labels_, label.empty() ? "" : "," + label, number(value));
  }
  void gauge(const char* name, double one, const char* help) {
    family("gauge", name, help);
    value(one);
  }
  void counter(const char* name, double one, const char* help) {
    family("counter", name, help);
    value(one);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string labels_, name_, text_;
};

}  // namespace

std::string prometheus_text(const LiveRun::Figures& f) {
  Text text(f);
  text.gauge("step", static_cast<double>(f.steps), "Steps of the job that are done.");
  if (f.steps > 0) {
    text.gauge("loss", f.last.loss, "Training loss of rank 0's last batch.");
    text.gauge("learning_rate", f.last.lr, "Learning rate of the last step.");
  }
  text.counter("step_seconds_total", f.sum.seconds, "Time of all steps of rank 0 since it started.");
  text.family("counter", "phase_seconds_total",
              "Where that time went: compute, update, encode, exposed (blocked on the wire). They add up to it.");
  text.value(f.sum.compute_seconds, R"(phase="compute")");
  text.value(f.sum.update_seconds, R"(phase="update")");
  text.value(f.sum.encode_seconds, R"(phase="encode")");
  text.value(f.sum.exposed_seconds, R"(phase="exposed")");
  text.counter("sent_bytes_total", f.sum.bytes_sent, "Bytes that the strategy's operations of rank 0 have sent.");
  text.counter("received_bytes_total", f.sum.bytes_received, "Bytes that they have received.");
  text.gauge("hidden_fraction", f.hidden_fraction, "Share of the time on the wire that did not block rank 0.");
  text.gauge("efficiency", f.efficiency, "Compute and update as a share of all step time.");
  text.gauge("workers", static_cast<double>(f.workers), "Workers that train.");
  text.gauge("group", static_cast<double>(f.group), "Number of the group of workers; 1 until workers change.");
  text.counter("recoveries_total", static_cast<double>(f.recoveries), "How often the job went on after a loss.");
  if (!f.metric.empty()) {
    text.family("gauge", "evaluation", "The last evaluation on the test data.");
    text.value(f.metric_value, fmt::format(R"(metric="{}")", escaped(f.metric)));
    text.gauge("evaluation_step", static_cast<double>(f.metric_steps), "Steps that were done at that evaluation.");
  }
  return text.take();
}

}  // namespace slipstream
