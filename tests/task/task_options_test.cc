// SPDX-License-Identifier: Apache-2.0
#include "task/task_options.h"

#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;

TEST(TaskOptions, DefaultsAreTheCnnOnTheInstalledFashionMnist) {
  const TaskOptions options = TaskOptions{}.resolved();
  EXPECT_EQ(options.model, "cnn");
  EXPECT_EQ(options.data, kFashionMnistDirectory);
}

TEST(TaskOptions, TextDefaultsToTheTransformer) {
  TaskOptions options;
  options.task = "text";
  options.data = "book.txt";
  EXPECT_EQ(options.resolved().model, "transformer");
}

TEST(TaskOptions, UnknownNamesSuggestTheNearest) {
  TaskOptions options;
  options.task = "fashion-minst";
  expect_error<ConfigError>([&] { options.resolved(); }, {"fashion-minst", "did you mean fashion-mnist?"});
  options = {};
  options.model = "resnet";
  expect_error<ConfigError>([&] { options.resolved(); }, {"model = resnet", "did you mean resnet20?"});
  options.model = "qqqqqqqq";
  expect_error<ConfigError>([&] { options.resolved(); }, {"use one of cnn, mlp, resnet20"});
}

TEST(TaskOptions, AModelOfAnotherTaskIsRefused) {
  TaskOptions options;
  options.model = "transformer";
  expect_error<ConfigError>([&] { options.resolved(); }, {"model = transformer is for task = text"});
}

TEST(TaskOptions, ImagesAndTextNeedData) {
  TaskOptions options;
  for (const char* task : {"images", "text"}) {
    options.task = task;
    expect_error<ConfigError>([&] { options.resolved(); }, {task, "needs data"});
  }
}

TEST(TaskOptions, MicroBatchesMustDivideTheBatch) {
  TaskOptions options;
  options.batch = 64;
  options.accumulate = 5;
  expect_error<ConfigError>([&] { options.resolved(); }, {"batch = 64", "accumulate = 5", "65"});
  options.accumulate = 0;
  expect_error<ConfigError>([&] { options.resolved(); }, {"accumulate = 0", "at least 1"});
}

TEST(TaskOptions, HeadsMustDivideTheWidth) {
  TaskOptions options;
  options.task = "text";
  options.data = "book.txt";
  options.width = 100;
  options.heads = 3;
  expect_error<ConfigError>([&] { options.resolved(); }, {"width = 100", "heads = 3", "99"});
}

TEST(TaskOptions, DescribesItselfToAnOptionSet) {
  TaskOptions options;
  OptionSet set("task");
  options.describe(set);
  set.set_pair("task=text");
  set.set_pair("batch=32");
  set.set_pair("context=16");
  EXPECT_TRUE(options.is_text());
  EXPECT_EQ(options.batch, 32);
  EXPECT_EQ(options.context, 16);
  EXPECT_THROW(set.set_pair("batch=0"), ConfigError);
  EXPECT_THROW(set.set_pair("task=audio"), ConfigError);
}

}  // namespace
}  // namespace slipstream
