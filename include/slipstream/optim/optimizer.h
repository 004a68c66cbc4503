// SPDX-License-Identifier: Apache-2.0
//
// Optimizer: one pass over flat weights and gradients. Used by workers and by server shards, so that both round alike.
// The state (velocity, moments) is fp32, of the model's size. The arithmetic is the same on every machine (no fused
// multiply-add, no width-dependent sums), so replicas on different processors stay bit-identical.
#pragma once

#include <slipstream/base/clock.h>
#include <slipstream/base/option.h>
#include <slipstream/base/state.h>
#include <slipstream/optim/parameter_group.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

struct OptimizerOptions {
  std::string kind = "sgd";  // sgd | adam | adamw
  double lr = 0.0;           // 0: the default of the kind, see base_lr()
  double momentum = 0.9;     // sgd
  bool nesterov = false;     // sgd
  double weight_decay = 0.0;
  double beta1 = 0.9;  // adam, adamw
  double beta2 = 0.999;
  double eps = 1e-8;
  double clip_norm = 0.0;                // 0: off
  std::vector<ParameterGroup> groups{};  // a parameter is in one of them, or in none

  void describe(OptionSet& o);  // all but the groups

  // lr, or where it is 0 the default of the kind: 0.05 for sgd, 0.001 for adam and adamw.
  double base_lr() const;
  // Settings of one group; GroupMap::kNone: those of all parameters without a group.
  double lr_factor(int group) const { return group < 0 ? 1.0 : groups[static_cast<std::size_t>(group)].lr_factor; }
  double decay(int group) const {
    return group < 0 ? weight_decay : groups[static_cast<std::size_t>(group)].weight_decay.value_or(weight_decay);
  }
};

// What a strategy asks of an optimizer; decides which state the optimizer holds.
enum class OptimizerUse {
  kSteps,       // step(): the dense rule, on a mean of gradients or on a worker's own
  kDirections,  // direction() and decay(): a worker's own gradient, of which parts are sent later
  kNothing      // servers move the weights
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // w <- w - step(scale * g). `scale` turns a sum into a mean without a pass of its own. With clip_norm the scaled
  // gradient's norm over the whole range is limited first, as torch's clip_grad_norm_ does.
  // `averaged_over` > 1: `grads` are a worker's own, and the weights will be averaged over that many workers. Adam then
  // divides g^2 by that number before adding it to the variance, as for a mean of that many gradients. Otherwise the
  // workers' noise, which averaging removes, would shorten every step by up to the square root of that number.
  void step(std::span<float> weights, std::span<const float> grads, float scale = 1.0F, int averaged_over = 1);

  // Counts a step of directions. step() counts itself.
  void begin_step() { ++steps_; }
  // How far a worker's own gradient asks the weights to go down, where the mean over `workers` is applied later, entry
  // by entry. The direction, in units of weights, is `grads` times the returned factor. Changes grads where a group has
  // its own rate.
  //   sgd    lr / (1 - momentum) g: all that momentum would ever make of g
  //   adam   v <- beta2 v + (1 - beta2) g^2;  lr g / (sqrt(v / workers / (1 - beta2^t)) + eps): the variance of a mean
  //          of P gradients is a P-th of one's. Changes grads
  float direction(std::size_t offset, std::span<float> grads, int workers);
  // The share of the last step's motion that the next one keeps: momentum, or adam's beta1.
  virtual double memory() const = 0;
  // Where the weights were going: the velocity of sgd, the first moment of adam and adamw. Empty where there is none.
  virtual std::span<float> momentum() { return {}; }
  // The weight decay of one step for weights that directions move, from element `offset` on: as strong as the dense
  // rule's in the long run.
  void decay(std::size_t offset, std::span<float> weights) const;

  double lr() const { return options_.lr; }
  void set_lr(double lr) { options_.lr = lr; }
  // Another rate for a group from the next step on. Throws ConfigError where there is no such group or rate.
  void set_lr_factor(std::size_t group, double factor);
  const OptimizerOptions& options() const { return options_; }
  const GroupMap& groups() const { return groups_; }

  // Time in its scope counts as update time. Code that moves weights by anything but step() must hold one.
  class Timed {
   public:
    explicit Timed(Optimizer& optimizer);
    ~Timed();
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

   private:
    Optimizer& optimizer_;
    double began_;
  };
  [[nodiscard]] Timed timed() { return Timed(*this); }
  void count_update(double began, double ended);              // adds update work that was done elsewhere
  double seconds() const { return seconds_; }                 // update time since construction
  void set_clock(const Clock& clock) { clock_ = &clock; }     // measures update time; default: the machine's clock
  std::function<void(double began, double ended)> on_update;  // if set, called for every stretch of update time

  virtual void visit(StateVisitor& v) = 0;

 protected:
  // Settings of a step over one stretch of elements.
  struct Update {
    std::size_t offset;
    double lr, weight_decay;
    float scale;
    int averaged_over;
  };

  Optimizer(const OptimizerOptions& options, std::size_t count, const GroupMap& groups);
  virtual void update(std::span<float> weights, std::span<const float> grads, const Update& by) = 0;
  virtual float whole_direction(std::size_t offset, std::span<float> grads, int workers) = 0;  // without groups
  virtual double long_rate() const = 0;  // how far a constant gradient moves a weight in a step, in the long run

  OptimizerOptions options_;
  std::int64_t steps_ = 0;

 private:
  const std::size_t count_;
  const GroupMap groups_;
  const Clock* clock_ = nullptr;
  double seconds_ = 0.0;
  bool timing_ = false;
};

// Throws ConfigError for combinations that make no sense (Nesterov without momentum, …). `groups` says where the
// options' groups lie among the `count` weights; empty without groups.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, std::size_t count,
                                          OptimizerUse use = OptimizerUse::kSteps, const GroupMap& groups = {});

}  // namespace slipstream
