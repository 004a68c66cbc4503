// SPDX-License-Identifier: Apache-2.0
#include "task/torch_task.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "task/image_batch.h"
#include "task/image_set.h"
#include "task/models.h"
#include "task/sampler.h"
#include "task/text.h"

namespace slipstream {
namespace {

// Seeds before the model is built, and before anything else can draw.
std::shared_ptr<Net> seeded(std::uint64_t seed, const auto& make) {
  torch::manual_seed(seed);
  return make();
}

template <typename T>
std::span<T> span_of(const torch::Tensor& contiguous) {
  return {contiguous.data_ptr<T>(), static_cast<std::size_t>(contiguous.numel())};
}

// Eval mode for a scope; train mode after it, which is what loss() needs.
class EvalScope {
 public:
  explicit EvalScope(torch::nn::Module& module) : module_(module) { module_.eval(); }
  ~EvalScope() { module_.train(); }
  EvalScope(const EvalScope&) = delete;
  EvalScope& operator=(const EvalScope&) = delete;

 private:
  torch::nn::Module& module_;
  torch::NoGradGuard no_grad_;
};

// Logits [n, classes] against targets [n].
Evaluation judge(const torch::Tensor& logits, const torch::Tensor& targets) {
  Evaluation result;
  result.samples = targets.numel();
  result.correct = logits.argmax(1).eq(targets).sum().item<std::int64_t>();
  // Summed in double: a float sum over a large shard would lose digits.
  result.loss_sum =
      torch::cross_entropy_loss(logits, targets, {}, at::Reduction::None).sum(torch::kDouble).item<double>();
  return result;
}

ImageData load_image_data(const TaskOptions& options) {
  std::error_code ignored;
  if (options.data == kFashionMnistDirectory && !std::filesystem::exists(options.data, ignored)) {
    fail<DataError>("{}: no such directory; install the package {} or set data to a directory of image files",
                    options.data, kFashionMnistPackage);
  }
  return load_images(options.data);
}

class ImageTask final : public TorchTask {
 public:
  ImageTask(const TaskOptions& options, ImageData data, int rank, int workers)
      : TorchTask(options, data.train.count, rank, workers),
        data_(std::move(data)),
        batcher_(data_.train),
        net_(seeded(options.seed, [&] {
          const ImageSet& set = data_.train;
          return make_image_model(options.model, {set.channels, set.height, set.width, set.classes});
        })) {
    std::tie(images_, labels_) = make_buffers(options.batch / options.accumulate);
  }

  torch::nn::Module& module() override { return *net_; }
  const char* metric() const override { return "test_accuracy"; }

  torch::Tensor loss(const Position& at, std::int64_t micro) override {
    const auto samples = samples_of(at, micro);
    fill(data_.train, samples, images_, labels_);
    if (!net_->is_training()) net_->train();
    return torch::cross_entropy_loss(net_->forward(images_), labels_) / options_.accumulate;
  }

  Evaluation evaluate(int rank, int workers) override {
    constexpr std::int64_t kBatch = 250;
    const Shard shard = balanced_shard(data_.test.count, rank, workers);
    const EvalScope scope(*net_);
    auto [images, labels] = make_buffers(kBatch);
    Evaluation total;
    std::vector<std::int64_t> samples;
    for (std::int64_t begin = shard.begin; begin < shard.end; begin += kBatch) {
      const std::int64_t count = std::min(kBatch, shard.end - begin);
      samples.resize(static_cast<std::size_t>(count));
      std::iota(samples.begin(), samples.end(), begin);
      const torch::Tensor batch = images.slice(0, 0, count), targets = labels.slice(0, 0, count);
      fill(data_.test, samples, batch, targets);
      total += judge(net_->forward(batch), targets);
    }
    return total;
  }

 private:
  std::pair<torch::Tensor, torch::Tensor> make_buffers(std::int64_t count) const {
    const ImageSet& set = data_.train;
    return {torch::empty({count, set.channels, set.height, set.width}), torch::empty({count}, torch::kInt64)};
  }

  void fill(const ImageSet& set, std::span<const std::int64_t> samples, const torch::Tensor& images,
            const torch::Tensor& labels) const {
    batcher_.gather(set, samples, span_of<float>(images), span_of<std::int64_t>(labels));
  }

  ImageData data_;
  ImageBatcher batcher_;
  std::shared_ptr<Net> net_;
  torch::Tensor images_, labels_;  // one micro-batch
};

// Windows of `context` characters that do not overlap; each epoch cuts the text at a different offset.
class TextTask final : public TorchTask {
 public:
  // The number of windows: as many as fit at the largest offset, with one more character to predict.
  TextTask(const TaskOptions& options, TextCorpus corpus, int rank, int workers)
      : TorchTask(options, (static_cast<std::int64_t>(corpus.train.size()) - options.context) / options.context, rank,
                  workers),
        corpus_(std::move(corpus)),
        net_(seeded(options.seed, [&] {
          return make_transformer({static_cast<std::int64_t>(corpus_.vocabulary.size()), options.width, options.depth,
                                   options.heads, options.context});
        })) {
    std::tie(inputs_, targets_) = make_buffers(options.batch / options.accumulate);
  }

  torch::nn::Module& module() override { return *net_; }
  const char* metric() const override { return "test_loss"; }
  std::string vocabulary() const override { return to_utf8(corpus_.vocabulary); }

  torch::Tensor loss(const Position& at, std::int64_t micro) override {
    const auto windows = samples_of(at, micro);
    const std::int64_t offset = epoch_offset(options_.seed, at.epoch, options_.context);
    for (std::size_t i = 0; i < windows.size(); ++i) {
      copy_window(corpus_.train, offset + windows[i] * options_.context, static_cast<std::int64_t>(i), inputs_,
                  targets_);
    }
    if (!net_->is_training()) net_->train();
    const torch::Tensor logits = net_->forward(inputs_).flatten(0, 1);
    return torch::cross_entropy_loss(logits, targets_.flatten()) / options_.accumulate;
  }

  Evaluation evaluate(int rank, int workers) override {
    constexpr std::int64_t kBatch = 64;
    const std::int64_t windows = (static_cast<std::int64_t>(corpus_.validation.size()) - 1) / options_.context;
    const Shard shard = balanced_shard(windows, rank, workers);
    const EvalScope scope(*net_);
    auto [inputs, targets] = make_buffers(kBatch);
    Evaluation total;
    for (std::int64_t begin = shard.begin; begin < shard.end; begin += kBatch) {
      const std::int64_t count = std::min(kBatch, shard.end - begin);
      for (std::int64_t i = 0; i < count; ++i) {
        copy_window(corpus_.validation, (begin + i) * options_.context, i, inputs, targets);
      }
      total += judge(net_->forward(inputs.slice(0, 0, count)).flatten(0, 1), targets.slice(0, 0, count).flatten());
    }
    return total;
  }

 private:
  std::pair<torch::Tensor, torch::Tensor> make_buffers(std::int64_t count) const {
    return {torch::empty({count, options_.context}, torch::kInt64),
            torch::empty({count, options_.context}, torch::kInt64)};
  }

  // Row `row` becomes the window from `at` on, its targets the same one character later.
  void copy_window(std::span<const std::int32_t> text, std::int64_t at, std::int64_t row, torch::Tensor& inputs,
                   torch::Tensor& targets) const {
    const auto context = static_cast<std::size_t>(options_.context);
    const auto window = text.subspan(static_cast<std::size_t>(at), context + 1);
    std::copy_n(window.begin(), context, inputs.data_ptr<std::int64_t>() + row * options_.context);
    std::copy_n(window.begin() + 1, context, targets.data_ptr<std::int64_t>() + row * options_.context);
  }

  TextCorpus corpus_;
  std::shared_ptr<Net> net_;
  torch::Tensor inputs_, targets_;  // one micro-batch
};

}  // namespace

std::span<const std::int64_t> TorchTask::samples_of(const Position& at, std::int64_t micro) {
  check(micro >= 0 && micro < options_.accumulate, "micro-batch {} of {}", micro, options_.accumulate);
  const auto size = static_cast<std::size_t>(options_.batch / options_.accumulate);
  return sampler_.batch(at).subspan(static_cast<std::size_t>(micro) * size, size);
}

Evaluation& Evaluation::operator+=(const Evaluation& other) {
  correct += other.correct;
  samples += other.samples;
  loss_sum += other.loss_sum;
  return *this;
}

double Evaluation::accuracy() const {
  check(samples > 0, "accuracy of no samples");
  return static_cast<double>(correct) / static_cast<double>(samples);
}

double Evaluation::mean_loss() const {
  check(samples > 0, "mean loss of no samples");
  return loss_sum / static_cast<double>(samples);
}

std::unique_ptr<TorchTask> make_task(const TaskOptions& options, int rank, int workers) {
  const TaskOptions resolved = options.resolved();
  if (resolved.is_text()) {
    return std::make_unique<TextTask>(resolved, read_text(resolved.data, resolved.context), rank, workers);
  }
  return std::make_unique<ImageTask>(resolved, load_image_data(resolved), rank, workers);
}

}  // namespace slipstream
