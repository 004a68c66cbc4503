// SPDX-License-Identifier: Apache-2.0
#include "task/task_options.h"

#include <fmt/ranges.h>
#include <slipstream/base/error.h>

#include <algorithm>

namespace slipstream {
namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

[[noreturn]] void fail_unknown(const char* key, const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  fail<ConfigError>("{} = {} is unknown; {} one of {}", key, word,
                    near.empty() ? "use" : fmt::format("did you mean {}? It is", near), fmt::join(known, ", "));
}

void check_model(const TaskOptions& options) {
  const std::vector<std::string>& known = model_names(options.task);
  if (contains(known, options.model)) return;
  for (const std::string& other : task_names()) {
    if (contains(model_names(other), options.model)) {
      fail<ConfigError>("model = {} is for task = {}; task = {} has {}", options.model, other, options.task,
                        fmt::join(known, ", "));
    }
  }
  fail_unknown("model", options.model, known);
}

void check_at_least_one(const char* key, std::int64_t value) {
  if (value < 1) fail<ConfigError>("{} = {} is out of range; it is at least 1", key, value);
}

}  // namespace

const std::vector<std::string>& task_names() {
  static const std::vector<std::string> names = {"fashion-mnist", "images", "text"};
  return names;
}

const std::vector<std::string>& model_names(const std::string& task) {
  static const std::vector<std::string> image_models = {"cnn", "mlp", "resnet20"};
  static const std::vector<std::string> text_models = {"transformer"};
  return task == "text" ? text_models : image_models;
}

void TaskOptions::describe(OptionSet& options) {
  constexpr std::int64_t kMost = 1'000'000;
  options.choice("task", task, task_names(), kChangesResult, "what to train on");
  options.text("data", data, kChangesResult, "directory of IDX or CIFAR-10 files, or a UTF-8 text file");
  options.text("model", model, kChangesResult, "cnn, mlp or resnet20 for images (default cnn), transformer for text");
  options.integer("batch", batch, {1, kMost}, kChangesResult, "samples per worker and step");
  options.integer("accumulate", accumulate, {1, kMost}, kChangesResult, "micro-batches a step's batch is split into");
  options.integer("width", width, {1, 65536}, kChangesResult, "transformer: floats per position");
  options.integer("depth", depth, {1, 1024}, kChangesResult, "transformer: blocks");
  options.integer("heads", heads, {1, 1024}, kChangesResult, "transformer: attention heads per block");
  options.integer("context", context, {1, 65536}, kChangesResult, "transformer: characters it looks back");
}

TaskOptions TaskOptions::resolved() const {
  TaskOptions done = *this;
  if (!contains(task_names(), task)) fail_unknown("task", task, task_names());
  if (done.model.empty()) done.model = model_names(task).front();
  check_model(done);
  if (done.data.empty()) {
    if (task != "fashion-mnist") {
      fail<ConfigError>("task = {} needs data: name {}", task,
                        is_text() ? "a UTF-8 text file" : "a directory of IDX or CIFAR-10 files");
    }
    done.data = kFashionMnistDirectory;
  }
  check_at_least_one("batch", batch);
  check_at_least_one("accumulate", accumulate);
  if (batch % accumulate != 0) {
    fail<ConfigError>(
        "batch = {} cannot be split into accumulate = {} equal micro-batches; the nearest batch that can is {}", batch,
        accumulate, std::max<std::int64_t>(1, (batch + accumulate / 2) / accumulate) * accumulate);
  }
  if (is_text()) {
    check_at_least_one("width", width);
    check_at_least_one("depth", depth);
    check_at_least_one("heads", heads);
    check_at_least_one("context", context);
    if (width % heads != 0) {
      fail<ConfigError>("width = {} cannot be shared equally among heads = {}; the nearest width that can is {}", width,
                        heads, std::max<std::int64_t>(1, (width + heads / 2) / heads) * heads);
    }
  }
  return done;
}

}  // namespace slipstream
