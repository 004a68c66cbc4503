// SPDX-License-Identifier: Apache-2.0
//
// DiLoCo and its kin: workers train alone from a shared point; what they moved is averaged and used as the gradient of
// an outer optimizer, which moves the shared point. Streaming DiLoCo does so one fragment of the model at a time, and
// goes on training while a fragment is on its way. See cards/streaming-diloco.md; the others are settings of it:
//
//   diloco          one fragment, del = 0, alpha = 0: all workers restart from theta     cards/diloco.md
//   overlap-local   one fragment, del = H, eta = 1, plain momentum instead of Nesterov   cards/overlap-local.md
//
// theta and its velocity are equal on all workers, bit for bit, between merges.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <vector>

#include "schedule/delayed.h"

namespace slipstream {

struct StreamingDilocoOptions {
  std::int64_t period = 50;  // changes the result: H
  std::int64_t fragments = 4;
  std::int64_t delay = 1;       // del
  double mix = 0.5;             // alpha
  double outer_lr = 0.7;        // eta
  double outer_momentum = 0.9;  // mu
  bool nesterov = true;         // not an option: only overlap-local turns it off

  void describe(OptionSet& o);
};

class StreamingDiloco : public Strategy {
 public:
  using Options = StreamingDilocoOptions;
  explicit StreamingDiloco(const Options& options);

  static double bytes_sent(const Options& options, const TrafficQuery& q);

  void on_start(Step& s) override;
  void on_step(Step& s) override;
  void on_finish(Step& s) override;
  void visit(StateVisitor& v) override;

 private:
  struct Fragment {
    Bucket part;  // of the flat model
    Delayed when;
    bool pending = false;  // D is under way or has arrived, and is not merged yet
    InFlight sum;
  };

  static std::vector<Fragment> cut(const Options& options, std::size_t count);
  void send(Step& s, Fragment& f);
  void merge(Step& s, Fragment& f);

  Options options_;
  std::vector<float> theta_, velocity_, delta_;
  std::vector<Fragment> fragments_;  // last: its sums use delta_
};

struct DilocoOptions {
  std::int64_t period = 50;  // changes the result
  double outer_lr = 0.7;
  double outer_momentum = 0.9;

  void describe(OptionSet& o);
  StreamingDilocoOptions streaming() const;
};

class Diloco final : public StreamingDiloco {
 public:
  using Options = DilocoOptions;
  explicit Diloco(const Options& options) : StreamingDiloco(options.streaming()) {}

  static double bytes_sent(const Options& options, const TrafficQuery& q) {
    return StreamingDiloco::bytes_sent(options.streaming(), q);
  }
};

struct OverlapLocalOptions {
  std::int64_t period = 4;  // changes the result
  double mix = 0.4;
  double outer_momentum = 0.7;

  void describe(OptionSet& o);
  StreamingDilocoOptions streaming() const;
};

class OverlapLocal final : public StreamingDiloco {
 public:
  using Options = OverlapLocalOptions;
  explicit OverlapLocal(const Options& options) : StreamingDiloco(options.streaming()) {}

  static double bytes_sent(const Options& options, const TrafficQuery& q) {
    return StreamingDiloco::bytes_sent(options.streaming(), q);
  }
};

}  // namespace slipstream
