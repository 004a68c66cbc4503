// SPDX-License-Identifier: Apache-2.0
//
// TorchTask: something real to train. It owns the data and the torch module, and turns a position in the data into a
// loss; it keeps no position of its own, so resuming needs nothing from it. All ranks build equal modules from the
// seed, and at every step take different parts of the same global batch (see sampler.h). It does not call backward,
// update weights or communicate, and is used by the training thread only.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>

#include "task/sampler.h"
#include "task/task_options.h"

namespace slipstream {

// Sums over test samples, so that ranks can add up their results. A sample is an image, or a character to predict.
struct Evaluation {
  std::int64_t correct = 0;
  std::int64_t samples = 0;
  double loss_sum = 0;

  Evaluation& operator+=(const Evaluation& other);
  double accuracy() const;   // fraction in [0, 1]
  double mean_loss() const;  // natural-log cross-entropy
};

class TorchTask {
 public:
  virtual ~TorchTask() = default;

  virtual torch::nn::Module& module() = 0;

  // Sets which worker's part of the data this is; `sampler` says which positions follow each other.
  void place(int rank, int workers) {
    sampler_.place(rank, workers);
    workers_ = workers;
  }
  const Sampler& sampler() const { return sampler_; }

  // Forward in train mode on one micro-batch (0 … accumulate-1) of this rank's batch: its mean loss divided by
  // `accumulate`, so that the gradients of a step's micro-batches add up to the batch's. Call backward before the next
  // loss: the input's memory is used again.
  virtual torch::Tensor loss(const Position& at, std::int64_t micro) = 0;

  // In eval mode, on this rank's shard of the test set. Every sample is in exactly one rank's shard.
  virtual Evaluation evaluate(int rank, int workers) = 0;

  // Text tasks: UTF-8, token t is the t-th character. Empty for others.
  virtual std::string vocabulary() const { return {}; }

  virtual const char* metric() const = 0;  // "test_accuracy" or "test_loss": what the task is judged by
  double judged(const Evaluation& evaluation) const {
    return metric() == std::string("test_accuracy") ? evaluation.accuracy() : evaluation.mean_loss();
  }

  // The options in force, defaults filled in.
  const TaskOptions& options() const { return options_; }
  // Images, or windows of text, that all workers together take in a step.
  std::int64_t samples_per_step() const { return options_.batch * workers_; }

 protected:
  TorchTask(TaskOptions options, std::int64_t samples, int rank, int workers)
      : options_(std::move(options)),
        sampler_(samples, options_.batch, rank, workers, options_.seed),
        workers_(workers) {}
  // The samples of one micro-batch of this worker's batch.
  std::span<const std::int64_t> samples_of(const Position& at, std::int64_t micro);

  TaskOptions options_;
  Sampler sampler_;
  int workers_;
};

// Reads the data and builds the model; sets torch::manual_seed(options.seed) for the weights. ConfigError for options
// that do not fit, DataError for data that cannot be read.
std::unique_ptr<TorchTask> make_task(const TaskOptions& options, int rank, int workers);

}  // namespace slipstream
