// SPDX-License-Identifier: Apache-2.0
//
// A strategy of your own, outside of Slipstream's sources: copy this file, rename the class, change the marked places.
// The program it builds is the whole `slipstream` command line with one more strategy:
//
//   example_my_strategy list
//   example_my_strategy explain decaying
//   example_my_strategy train --workers 3 --strategy decaying --set period=16 --set halve_every=50
//
// The example averages weights, as local SGD does, but less and less rarely: far from the minimum workers may drift for
// many steps, close to it they should not.
//
//   J. Wang, G. Joshi, "Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off in Local-Update
//   SGD", MLSys 2019, arXiv 1810.08313 (there the period follows the loss; here it follows a fixed schedule).
//
//   each step t:
//     (1)  w <- w - step(g)                                  own gradient, own optimizer state
//     (2)  tau <- max(1, period / 2^(t / halve_every))       whole divisions
//     (3)  every tau steps:  w <- mean of all workers' w     blocking
#include <slipstream/cli/cli.h>
#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <algorithm>
#include <cstdint>

namespace {

// The options: plain fields with their defaults, described once. From the description come `--set period=16`, the range
// checks, the help of `explain` and the resolved configuration.
struct DecayingOptions {
  std::int64_t period = 16;  // changes the result
  std::int64_t halve_every = 100;

  void describe(slipstream::OptionSet& o) {
    o.integer("period", period, {1, 1'000'000}, slipstream::kChangesResult, "steps between two averages at the start");
    o.integer("halve_every", halve_every, {1, 1'000'000'000}, slipstream::kChangesResult,
              "after so many steps the period is halved, again and again, down to 1");
  }

  // Does step t end with an average? A pure function of the step number: all ranks answer alike, without asking each
  // other. (That is the one rule a strategy must keep: same operations, same order, on every rank.)
  bool averages(std::int64_t t) const {
    const std::int64_t halvings = std::min<std::int64_t>(t / halve_every, 62);
    const std::int64_t tau = std::max<std::int64_t>(1, period >> halvings);  // (2)
    return (t % halve_every + 1) % tau == 0;
  }
};

class DecayingAverage final : public slipstream::Strategy {
 public:
  using Options = DecayingOptions;  // the name the registry looks for
  explicit DecayingAverage(const Options& options) : options_(options) {}

  // What `list` and `explain` tell, and how the registry makes one.
  static slipstream::StrategyInfo info() {
    return {
        .name = "decaying",
        .title = "local SGD whose averages come more and more often",
        .paper = "J. Wang, G. Joshi, Adaptive Communication Strategies, MLSys 2019 (arXiv 1810.08313)",
        .pseudo_code = {"each step t:",
                        "  (1) w <- w - step(g)                               own gradient, own optimizer state",
                        "  (2) tau <- max(1, period / 2^(t / halve_every))    whole divisions",
                        "  (3) every tau steps:  w <- mean of all workers' w  blocking"},
        .bytes_per_step = "2 (P-1)/P × 4 bytes × parameters / tau on average, each way",
        .waits_for = "every worker's weights, once in tau steps",
        .notes = {"The period follows a fixed schedule; in the paper it follows the loss."},
        .configure = [] { return slipstream::configure_strategy<DecayingAverage>("decaying"); },
    };
  }

  // The exact number of bytes one worker sends in step q.t: a sum counts as 2 (P-1)/P of its data.
  static double bytes_sent(const Options& options, const slipstream::TrafficQuery& q) {
    const double model_bytes = static_cast<double>(q.model.count() * sizeof(float));
    return options.averages(q.t) ? 2.0 * (q.workers - 1) / q.workers * model_bytes : 0.0;
  }

  // Called once a step, after backward: leave the model ready for the next forward pass. (To send parts of the gradient
  // while backward still runs, override on_bucket_ready too: start operations there, keep their InFlight in a member
  // and wait for them here.)
  void on_step(slipstream::Step& s) override {
    s.opt.step(s.model.weights(), s.model.grads());  // (1)
    if (options_.averages(s.t)) average(s);          // (3)
  }

  // Called once, with s.t steps behind us: leave equal weights on all ranks.
  void on_finish(slipstream::Step& s) override {
    if (s.t > 0 && !options_.averages(s.t - 1)) average(s);
  }

  // Names everything that outlives a step, for checkpoints. Nothing does here; a strategy with a buffer of its own, say
  // std::vector<float> anchor_, writes v.floats("anchor", anchor_).
  void visit(slipstream::StateVisitor&) override {}

 private:
  static void average(slipstream::Step& s) {
    s.net.sum(s.model.weights()).wait();  // in place; sum() returns at once, wait() blocks
    for (float& w : s.model.weights()) w /= static_cast<float>(s.net.size());
  }

  Options options_;
};

}  // namespace

int main(int argc, char** argv) {
  auto registry = slipstream::Registry::builtin();  // all of Slipstream's strategies …
  registry.add(DecayingAverage::info());            // … and one more
  return slipstream::run_cli(argc, argv, registry);
}
