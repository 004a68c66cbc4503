// SPDX-License-Identifier: Apache-2.0
//
// TaskOptions: what is trained, on which data. Plain values, known without torch, so that the command line and the
// configuration can describe and check them before a model exists. `resolved()` is the one place that fills in
// defaults and refuses what does not fit together; it does not look at the data.
#pragma once

#include <slipstream/base/option.h>

#include <cstdint>
#include <string>
#include <vector>

namespace slipstream {

struct TaskOptions {
  std::string task = "fashion-mnist";  // fashion-mnist, images (IDX or CIFAR-10 files) or text (a UTF-8 file)
  std::string data;                    // directory of images or text file; empty: the installed Fashion-MNIST
  std::string model;                   // empty: cnn for images, transformer for text
  std::int64_t batch = 64;             // samples per worker and step
  std::int64_t accumulate = 1;         // micro-batches a step's batch is split into
  std::int64_t width = 128;            // this and the next three: transformer only
  std::int64_t depth = 2;
  std::int64_t heads = 4;
  std::int64_t context = 64;
  std::uint64_t seed = 1;  // for initial weights and sample order; an option of the whole job, so not described here

  void describe(OptionSet& options);

  bool is_text() const { return task == "text"; }

  // These options with every default filled in. ConfigError for unknown names (with the nearest known one), a model of
  // another kind of task, missing data, a batch that does not divide, a width that the heads do not divide.
  TaskOptions resolved() const;
};

inline constexpr const char* kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";
inline constexpr const char* kFashionMnistPackage = "dataset-fashion-mnist";

const std::vector<std::string>& task_names();
const std::vector<std::string>& model_names(const std::string& task);  // the first is the default

}  // namespace slipstream
