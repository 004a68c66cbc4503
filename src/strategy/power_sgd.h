// SPDX-License-Identifier: Apache-2.0
//
// PowerSGD: every gradient matrix is sent as two thin factors, found by one step of power iteration from where the last
// one ended. The strongest compressor that PyTorch users have on slow links. See cards/powersgd.md.
//
// Every rank issues its sums bucket by bucket, first all of (3), then all of (5). Replicas stay bit-identical: A and B
// are sums, and what follows from them is computed alike everywhere.
#pragma once

#include <slipstream/strategy/registry.h>
#include <slipstream/strategy/strategy.h>

#include <cstdint>
#include <vector>

namespace slipstream {

struct PowerSgdOptions {
  std::int64_t rank = 2;  // changes the result
  double min_shrink = 2;
  std::int64_t warmup_steps = 0;

  void describe(OptionSet& o);
};

class PowerSgd final : public Strategy {
 public:
  using Options = PowerSgdOptions;
  explicit PowerSgd(const Options& options) : options_(options) {}

  static double bytes_sent(const Options& options, const TrafficQuery& q);

  void on_start(Step& s) override;
  void on_bucket_ready(Step& s, const Bucket& bucket) override;
  void on_step(Step& s) override;
  void visit(StateVisitor& v) override;
  std::span<float> owed() override { return owed_; }

 private:
  // One slot. Factors are held transposed, r rows of `rows` or `columns` floats.
  struct Tensor {
    std::size_t offset = 0, count = 0, rows = 0, columns = 0;
    std::size_t at_a = 0;  // in left_: A, or the tensor itself where it is small
    std::size_t at_b = 0;  // in right_
    bool small = false;
  };
  struct Message {
    std::vector<Tensor> tensors;
    std::vector<float> left, right;  // what is summed in (3) and (5)
    InFlight sum;                    // last: it uses the memory above
  };

  static Message lay_out(const Options& options, const FlatModel& model, const Bucket& bucket);
  void draw_vanished(Message& message, std::uint64_t t);

  Options options_;
  std::size_t r_ = 0;
  std::vector<float> owed_;        // e, and M from (1) to (6)
  std::vector<Message> messages_;  // by bucket
};

}  // namespace slipstream
