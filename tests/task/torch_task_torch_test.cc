// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "task/files.h"
#include "task/torch_task.h"

namespace slipstream {
namespace {

using test::expect_error;
using test::TempDir;

// 8 x 8 images of four classes that differ in which quarter is bright: small enough to learn in a few steps.
void write_images(const TempDir& dir, std::uint32_t train, std::uint32_t test) {
  for (const auto& [name, count] : std::map<std::string, std::uint32_t>{{"train", train}, {"t10k", test}}) {
    std::string pixels, labels;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t label = i % 4;
      labels.push_back(static_cast<char>(label));
      for (std::uint32_t p = 0; p < 64; ++p) {
        const bool bright = (p / 32) * 2 + (p % 8) / 4 == label;
        pixels.push_back(static_cast<char>((bright ? 150 : 20) + (i * 7 + p * 13) % 50));
      }
    }
    dir.write(name + "-images-idx3-ubyte", test::idx_images(count, 8, 8, pixels));
    dir.write(name + "-labels-idx1-ubyte", test::idx_labels(count, labels));
  }
}

std::string write_text(const TempDir& dir) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the quick brown fox jumps over the lazy dog; ";
  return dir.write("text", text).string();
}

TaskOptions image_options(const TempDir& dir, const std::string& model, std::int64_t batch) {
  TaskOptions options;
  options.task = "images";
  options.data = dir.path().string();
  options.model = model;
  options.batch = batch;
  return options;
}

TaskOptions text_options(const std::string& file) {
  TaskOptions options;
  options.task = "text";
  options.data = file;
  options.batch = 8;
  options.width = 32;
  options.context = 16;
  return options;
}

// Gradients of one whole step, micro-batches added up.
std::vector<torch::Tensor> step_gradients(TorchTask& task, std::int64_t epoch, std::int64_t step) {
  task.module().zero_grad();
  for (std::int64_t micro = 0; micro < task.options().accumulate; ++micro)
    task.loss({epoch, step * task.samples_per_step()}, micro).backward();
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : task.module().parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

void expect_close(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].allclose(b[i], 1e-4, 1e-6)) << i;
}

// Plain SGD; the test loss before and after.
std::pair<double, double> train(TorchTask& task, std::int64_t steps, double rate) {
  const double before = task.evaluate(0, 1).mean_loss();
  torch::optim::SGD sgd(task.module().parameters(), torch::optim::SGDOptions(rate).momentum(0.9));
  Position at;
  for (std::int64_t t = 0; t < steps; ++t) {
    sgd.zero_grad();
    task.loss(at, 0).backward();
    at = task.sampler().after(at);
    sgd.step();
  }
  return {before, task.evaluate(0, 1).mean_loss()};
}

TEST(TorchTask, LoadsTheInstalledFashionMnist) {
  const auto task = make_task({}, 0, 1);
  EXPECT_EQ(task->sampler().steps_per_epoch(), 60000 / 64);
  EXPECT_EQ(task->samples_per_step(), 64);
  EXPECT_EQ(task->options().model, "cnn");
  EXPECT_STREQ(task->metric(), "test_accuracy");
  EXPECT_NEAR(task->loss({0, 0}, 0).item<double>(), std::log(10.0), 0.2);
  EXPECT_EQ(task->evaluate(3, 40).samples, 250);  // of 10000
}

TEST(TorchTask, LearnsFashionMnistInAFewSteps) {
  TaskOptions options;
  options.model = "mlp";
  const auto task = make_task(options, 0, 1);
  const auto [before, after] = train(*task, 60, 0.02);
  EXPECT_LT(after, 0.5 * before);
  EXPECT_GT(task->evaluate(0, 1).accuracy(), 0.6);
}

TEST(TorchTask, EveryImageModelLearns) {
  const TempDir dir;
  write_images(dir, 400, 40);
  for (const char* model : {"mlp", "cnn", "resnet20"}) {
    const auto task = make_task(image_options(dir, model, 20), 0, 1);
    const auto [before, after] = train(*task, 20, 0.02);
    EXPECT_LT(after, 0.7 * before) << model;
  }
}

TEST(TorchTask, TheTransformerLearnsTheText) {
  const TempDir dir;
  const auto task = make_task(text_options(write_text(dir)), 0, 1);
  EXPECT_STREQ(task->metric(), "test_loss");
  const auto [before, after] = train(*task, 40, 0.1);
  EXPECT_LT(after, 0.8 * before);
}

TEST(TorchTask, IsDeterministicFromTheSeed) {
  const TempDir dir;
  write_images(dir, 200, 20);
  for (const TaskOptions& options : {image_options(dir, "cnn", 10), text_options(write_text(dir))}) {
    TaskOptions other = options;
    other.seed = options.seed + 1;
    const auto a = make_task(options, 1, 2), b = make_task(options, 1, 2), c = make_task(other, 1, 2);
    EXPECT_TRUE(a->loss({2, 48}, 0).equal(b->loss({2, 48}, 0)));
    EXPECT_FALSE(a->loss({2, 48}, 0).equal(c->loss({2, 48}, 0)));
  }
}

TEST(TorchTask, RanksStartWithEqualWeightsAndDifferentSamples) {
  const TempDir dir;
  write_images(dir, 200, 20);
  const auto a = make_task(image_options(dir, "mlp", 10), 0, 2), b = make_task(image_options(dir, "mlp", 10), 1, 2);
  const auto weights_a = a->module().parameters(), weights_b = b->module().parameters();
  for (std::size_t i = 0; i < weights_a.size(); ++i) EXPECT_TRUE(weights_a[i].equal(weights_b[i]));
  EXPECT_FALSE(a->loss({0, 0}, 0).equal(b->loss({0, 0}, 0)));
  EXPECT_EQ(a->samples_per_step(), 20);
}

TEST(TorchTask, TheMeanOverWorkersIsTheGradientOfOneWorkerWithTheirBatches) {
  const TempDir dir;
  write_images(dir, 200, 20);
  const std::string text = write_text(dir);
  for (const bool is_text : {false, true}) {
    const TaskOptions each = is_text ? text_options(text) : image_options(dir, "cnn", 8);
    TaskOptions whole = each;
    whole.batch = 3 * each.batch;
    std::vector<torch::Tensor> mean;
    for (int rank = 0; rank < 3; ++rank) {
      auto mine = step_gradients(*make_task(each, rank, 3), 1, 2);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        if (rank == 0)
          mean.push_back(mine[i] / 3);
        else
          mean[i] += mine[i] / 3;
      }
    }
    expect_close(mean, step_gradients(*make_task(whole, 0, 1), 1, 2));
  }
}

TEST(TorchTask, MicroBatchesAddUpToTheBatch) {
  const TempDir dir;
  write_images(dir, 200, 20);
  const std::string text = write_text(dir);
  for (const bool is_text : {false, true}) {
    const TaskOptions whole = is_text ? text_options(text) : image_options(dir, "mlp", 8);
    TaskOptions split = whole;
    split.accumulate = 4;
    expect_close(step_gradients(*make_task(split, 0, 1), 0, 1), step_gradients(*make_task(whole, 0, 1), 0, 1));
    EXPECT_THROW(make_task(split, 0, 1)->loss({0, 0}, 4), Error);
  }
}

TEST(TorchTask, ShardsOfTheTestSetAddUpToAllOfIt) {
  const TempDir dir;
  write_images(dir, 40, 37);
  for (const TaskOptions& options : {image_options(dir, "cnn", 10), text_options(write_text(dir))}) {
    const auto task = make_task(options, 0, 1);
    const Evaluation whole = task->evaluate(0, 1);
    Evaluation sum;
    for (int rank = 0; rank < 3; ++rank) sum += task->evaluate(rank, 3);
    EXPECT_EQ(sum.samples, whole.samples);
    EXPECT_EQ(sum.correct, whole.correct);
    EXPECT_NEAR(sum.loss_sum, whole.loss_sum, 1e-4 * whole.loss_sum);
  }
}

TEST(TorchTask, EvaluationLeavesTheModelAsItWasAndInTrainMode) {
  const TempDir dir;
  write_images(dir, 40, 12);
  const auto task = make_task(image_options(dir, "resnet20", 10), 0, 1);
  task->loss({0, 0}, 0);  // moves the running statistics of BatchNorm
  std::vector<torch::Tensor> before;
  for (const torch::Tensor& buffer : task->module().buffers()) before.push_back(buffer.clone());
  const Evaluation once = task->evaluate(0, 1);
  EXPECT_TRUE(task->module().is_training());
  EXPECT_DOUBLE_EQ(task->evaluate(0, 1).loss_sum, once.loss_sum);
  const auto after = task->module().buffers();
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(after[i].equal(before[i]));
}

TEST(TorchTask, DataThatDoesNotFitIsRefused) {
  const TempDir dir;
  write_images(dir, 40, 12);
  expect_error<ConfigError>([&] { make_task(image_options(dir, "mlp", 21), 0, 2); }, {"batch = 21", "1 to 20"});
  expect_error<DataError>([&] { make_task(text_options(dir.write("short", "abc").string()), 0, 1); },
                          {"3 characters", "170"});
  TaskOptions options = image_options(dir, "mlp", 1);
  options.data += "/none";
  expect_error<DataError>([&] { make_task(options, 0, 1); }, {"none", "no such directory"});
}

}  // namespace
}  // namespace slipstream
