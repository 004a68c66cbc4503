// SPDX-License-Identifier: Apache-2.0
//
// Optimizer: one pass over flat weights and gradients. Used by workers and by server shards, so that both round alike.
// The state (velocity, moments) is fp32, of the model's size. The arithmetic is the same on every machine (no fused
// multiply-add, no width-dependent sums), so replicas on different processors stay bit-identical.
#pragma once

#include <slipstream/base/clock.h>
#include <slipstream/base/option.h>
#include <slipstream/base/state.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

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
  double clip_norm = 0.0;  // 0: off

  void describe(OptionSet& o);

  // lr, or where it is 0 the default of the kind: 0.05 for sgd, 0.001 for adam and adamw.
  double base_lr() const;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // w <- w - step(scale * g). `scale` turns a sum into a mean without a pass of its own. With clip_norm the scaled
  // gradient's norm over the whole range is limited first, as torch's clip_grad_norm_ does.
  void step(std::span<float> weights, std::span<const float> grads, float scale = 1.0F);

  double lr() const { return options_.lr; }
  void set_lr(double lr) { options_.lr = lr; }
  const OptimizerOptions& options() const { return options_; }
  double seconds() const { return seconds_; }              // time spent in step() since construction
  void set_clock(const Clock& clock) { clock_ = &clock; }  // of that time; the machine's unless set

  virtual void visit(StateVisitor& v) = 0;

 protected:
  explicit Optimizer(const OptimizerOptions& options) : options_(options) { options_.lr = options.base_lr(); }
  virtual void update(std::span<float> weights, std::span<const float> grads, float scale) = 0;

  OptimizerOptions options_;

 private:
  const Clock* clock_ = nullptr;
  double seconds_ = 0.0;
};

// Throws ConfigError for combinations that make no sense (Nesterov without momentum, …).
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, std::size_t count);

}  // namespace slipstream
