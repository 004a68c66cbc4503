// SPDX-License-Identifier: Apache-2.0
#include "topology/compressed_sum.h"

#include <slipstream/base/error.h>

#include <algorithm>

#include "base/vec.h"
#include "codec/count_sketch.h"
#include "codec/topk.h"
#include "fabric/metered_fabric.h"
#include "topology/sparse_gather.h"

namespace slipstream {
namespace {

class TopkSum final : public CompressedSum {
 public:
  explicit TopkSum(std::size_t entries) : entries_(entries) {}

  void start(Fabric& net, std::span<float> owed, std::int64_t) override {
    share_ = 1.0F / static_cast<float>(net.size());
    select_.take(owed, entries_, picked_);
    gather_.start(net, picked_, owed.size());
  }
  bool done() const override { return gather_.done(); }
  void finish(std::span<float>, std::span<float> up, std::span<float> down) override {
    gather_.finish_adding(up, share_);
    gather_.finish_adding(down, -share_);
  }

 private:
  std::size_t entries_;
  float share_ = 1;
  TopK select_;
  Sparse picked_;
  SparseGather gather_{ValueFormat::kFp32};
};

class HalfSum final : public CompressedSum {
 public:
  explicit HalfSum(std::size_t count) : bits_(count), message_(count) {}

  void start(Fabric& net, std::span<float> owed, std::int64_t) override {
    share_ = 1.0F / static_cast<float>(net.size());
    vec::to_fp16(bits_, owed);
    vec::from_fp16(message_, bits_);
    vec::subtract(owed, owed, message_);
    sum_ = net.sum(message_, Wire::kFp16);
  }
  bool done() const override { return sum_.done(); }
  void finish(std::span<float>, std::span<float> up, std::span<float> down) override {
    sum_.wait();
    vec::add_scaled(up, message_, share_);
    vec::add_scaled(down, message_, -share_);
  }

 private:
  float share_ = 1;
  std::vector<std::uint16_t> bits_;
  std::vector<float> message_;
  InFlight sum_;  // last: it uses the memory above
};

constexpr int kRows = 5;

// With as many columns as entries, the noise of an estimate is as large as the entries searched for; four times as many
// columns and the median of five rows reduce it to about half of that.
std::size_t sketch_columns(std::size_t entries) { return std::max<std::size_t>(1, (entries + 3) / 4) * 16; }

class SketchSum final : public CompressedSum {
 public:
  explicit SketchSum(std::size_t entries)
      : values_(entries), sketch_({.rows = kRows, .columns = sketch_columns(entries)}) {}

  void start(Fabric& net, std::span<float> owed, std::int64_t number) override {
    net_ = &net;
    number_ = number;
    sketch_.clear();
    sketch_.add(0, owed);
    sum_ = net.sum(sketch_.table());
  }
  bool done() const override { return sum_.done(); }
  void finish(std::span<float> owed, std::span<float> up, std::span<float> down) override {
    sum_.wait();
    const auto chosen = sketch_.heavymix(owed.size(), values_.size(), static_cast<std::uint64_t>(number_));
    for (std::size_t j = 0; j < chosen.size(); ++j) {
      values_[j] = owed[chosen[j]];
      owed[chosen[j]] = 0.0F;
    }
    net_->sum(values_).wait();
    const float share = 1.0F / static_cast<float>(net_->size());
    for (std::size_t j = 0; j < chosen.size(); ++j) {
      up[chosen[j]] += share * values_[j];
      down[chosen[j]] -= share * values_[j];
    }
  }

 private:
  Fabric* net_ = nullptr;
  std::int64_t number_ = 0;
  std::vector<float> values_;
  CountSketch sketch_;
  InFlight sum_;  // last: it uses the memory above
};

}  // namespace

std::size_t CompressedSumOptions::entries(std::size_t count) const {
  return std::min(count, std::max<std::size_t>(1, static_cast<std::size_t>(density * static_cast<double>(count))));
}

std::unique_ptr<CompressedSum> CompressedSumOptions::make(std::size_t count) const {
  if (codec == "topk") return std::make_unique<TopkSum>(entries(count));
  if (codec == "half") return std::make_unique<HalfSum>(count);
  check(codec == "sketch", "there is no codec '{}'", codec);
  return std::make_unique<SketchSum>(entries(count));
}

double CompressedSumOptions::start_bytes(std::size_t count, int ranks) const {
  if (count == 0) return 0.0;
  if (codec == "half") return MeteredFabric::sum_bytes(count, ranks, Wire::kFp16);
  if (codec == "sketch") return MeteredFabric::sum_bytes(kRows * sketch_columns(entries(count)), ranks);
  return SparseGather::bytes_sent(entries(count), count, ValueFormat::kFp32, ranks);
}

double CompressedSumOptions::finish_bytes(std::size_t count, int ranks) const {
  return codec == "sketch" ? MeteredFabric::sum_bytes(entries(count), ranks) : 0.0;
}

}  // namespace slipstream
