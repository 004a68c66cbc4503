// SPDX-License-Identifier: Apache-2.0
#include "runtime/config.h"

#include <gtest/gtest.h>

#include "task/files.h"

namespace slipstream {
namespace {

using test::expect_error;

class TrainConfigFile : public testing::Test {
 protected:
  TrainConfig load(const std::string& text) {
    TrainConfig config;
    config.load_toml(dir_.write("job.toml", text));
    return config;
  }
  void expect_refused(const std::string& text, std::initializer_list<std::string> words) {
    expect_error<ConfigError>([&] { load(text); }, words);
  }

  test::TempDir dir_;
  const Registry registry_ = Registry::builtin();
};

TEST_F(TrainConfigFile, SetsWhatItSaysAndLeavesTheRest) {
  const TrainConfig config = load(R"(
strategy = "local"
epochs = 3
lr = 0.25
nesterov = true
lr_schedule = "cosine"
batch = 32
workers = 4
timeout = 7
out = "runs/a b"
[set]
period = 8
warmup_steps = 2
)");
  EXPECT_EQ(config.strategy, "local");
  EXPECT_EQ(config.epochs, 3);
  EXPECT_EQ(config.optimizer.lr, 0.25);
  EXPECT_TRUE(config.optimizer.nesterov);
  EXPECT_EQ(config.schedule.kind, "cosine");
  EXPECT_EQ(config.task.batch, 32);
  EXPECT_EQ(config.launch.workers, 4);
  EXPECT_EQ(config.launch.timeout, 7.0);
  EXPECT_EQ(config.out, "runs/a b");
  EXPECT_EQ(config.set, (std::vector<std::string>{"period=8", "warmup_steps=2"}));
  EXPECT_EQ(config.seed, TrainConfig().seed);
  EXPECT_EQ(config.optimizer.momentum, OptimizerOptions().momentum);
}

TEST_F(TrainConfigFile, NoDecayIsAParameterGroup) {
  const TrainConfig config = load("weight_decay = 0.5\nno_decay = \"bias,norm\"\n");
  const OptimizerOptions grouped = config.grouped_optimizer();
  ASSERT_EQ(grouped.groups.size(), 1U);
  EXPECT_EQ(grouped.groups[0].names, (std::vector<std::string>{"*bias*", "*norm*"}));
  EXPECT_EQ(grouped.groups[0].weight_decay, 0.0);
  EXPECT_EQ(grouped.groups[0].lr_factor, 1.0);
  EXPECT_EQ(grouped.weight_decay, 0.5);
  EXPECT_EQ(load(config.to_toml(registry_)).no_decay, "bias,norm");
  EXPECT_TRUE(TrainConfig().grouped_optimizer().groups.empty());
  expect_error<ConfigError>([&] { load("no_decay = \"bias\"\n").validate(registry_); }, {"weight_decay", "0"});
  for (const char* wrong : {",", "bias,,norm", "*bias", "bias, norm"}) {
    expect_error<ConfigError>(
        [&] { load(fmt::format("weight_decay = 0.5\nno_decay = \"{}\"\n", wrong)).validate(registry_); },
        {"separated by commas"});
  }
}

TEST_F(TrainConfigFile, AnEmptyFileChangesNothing) {
  EXPECT_EQ(load("# nothing\n").to_toml(registry_), TrainConfig().to_toml(registry_));
}

TEST_F(TrainConfigFile, NamesFileLineAndTheNearestKeyOfATypo) {
  expect_refused("epochs = 2\n\nlr_shedule = \"step\"\n",
                 {"job.toml:3:", "'lr_shedule'", "did you mean 'lr_schedule'"});
}

TEST_F(TrainConfigFile, NamesFileLineAndKeyOfABadValue) {
  expect_refused("\nepochs = \"many\"\n", {"job.toml:2:", "epochs", "a whole number", "'many'"});
  expect_refused("epochs = 1.5\n", {"job.toml:1:", "epochs", "a whole number"});
  expect_refused("momentum = 2\n", {"job.toml:1:", "momentum", "out of range"});
  expect_refused("nesterov = 1\n", {"job.toml:1:", "nesterov", "true or false"});
  expect_refused("optimizer = \"adanw\"\n", {"job.toml:1:", "optimizer", "did you mean adamw"});
  expect_refused("epochs = [1, 2]\n", {"job.toml:1:", "epochs", "should be"});
  expect_refused("set = 3\n", {"job.toml:1:", "[set]"});
  expect_refused("seed = 1\n[set]\nperiod = [4]\n", {"job.toml:2:", "period", "should be"});
}

TEST_F(TrainConfigFile, NamesTheLineThatIsNoToml) { expect_refused("epochs = 1\nlr = = 2\n", {"job.toml:2:"}); }

TEST_F(TrainConfigFile, NamesAFileThatIsNotThere) {
  expect_error<ConfigError>([&] { TrainConfig().load_toml(dir_.path() / "none.toml"); }, {"none.toml"});
}

TEST_F(TrainConfigFile, NamesADirectory) {
  TrainConfig config;
  test::expect_error<ConfigError>([&] { config.load_toml("/tmp"); }, {"/tmp", "not a file"});
}

TEST_F(TrainConfigFile, AStrategyMayBringItsOptions) {
  TrainConfig config;
  config.strategy = "dasgd:period=8,delay=2";
  config.set = {"delay=3"};
  config.take_set_from_strategy();
  EXPECT_EQ(config.strategy, "dasgd");
  EXPECT_EQ(config.set, (std::vector<std::string>{"period=8", "delay=2", "delay=3"}));
}

TEST_F(TrainConfigFile, WhatIsWrittenReadsBackTheSame) {
  TrainConfig config;
  config.strategy = "local";
  config.set = {"period=8"};
  config.steps = 12345;
  config.seed = 99;
  config.out = "a \"quoted\" name\\with\ttabs and ümlauts";
  config.optimizer = {.kind = "adamw", .lr = 3e-7, .weight_decay = 0.1, .eps = 1e-12, .clip_norm = 1e25};
  config.schedule.step_gamma = 1.0 / 3;
  config.task.task = "text";
  config.task.data = "book.txt";
  config.launch.workers = 5;
  config.launch.lab = "1gbit,20ms";
  config.json = true;

  const std::string text = config.to_toml(registry_);
  const TrainConfig back = load(text);
  EXPECT_EQ(back.to_toml(registry_), text);
  EXPECT_EQ(back.out, config.out);
  EXPECT_EQ(back.optimizer.lr, 3e-7);
  EXPECT_EQ(back.optimizer.eps, 1e-12);
  EXPECT_EQ(back.optimizer.clip_norm, 1e25);
  EXPECT_EQ(back.schedule.step_gamma, 1.0 / 3);
  EXPECT_EQ(back.launch.workers, 5);
  EXPECT_TRUE(back.json);
}

TEST_F(TrainConfigFile, EveryKeyButThoseOfOneProcessOrRunIsWritten) {
  TrainConfig config;
  config.launch.workers = 2;
  config.out = config.task.data = config.task.model = config.launch.interface = config.launch.lab = "x";
  config.launch.elastic = config.launch.chaos = config.init = "x";
  config.launch.secret_file = config.no_decay = config.checkpoint_every = config.checkpoint_dir = config.resume = "x";
  config.dashboard = "x";
  const std::string text = "\n" + config.to_toml(registry_);
  OptionSet options("test");
  config.describe(options);
  for (const Option& option : options.all()) {
    const bool of_one_run = option.name == "rank" || option.name == "world_size" || option.name == "master_addr" ||
                            option.name == "master_port" || option.name == "resume" || option.name == "overwrite" ||
                            option.name == "dashboard";
    EXPECT_EQ(text.find("\n" + option.name + " = ") != std::string::npos, !of_one_run) << option.name;
  }
}

TEST_F(TrainConfigFile, TheStrategysOptionsAreWrittenResolved) {
  TrainConfig config;
  config.strategy = "local";
  config.set = {"period=8"};
  const std::string text = config.to_toml(registry_);
  EXPECT_NE(text.find("[set]\nperiod = 8\nwarmup_steps = 0\n"), std::string::npos) << text;
  EXPECT_NE(TrainConfig().to_toml(registry_).find("wire = "), std::string::npos);
}

TEST_F(TrainConfigFile, ValidateFindsWhatIsWrongBeforeAWorkerStarts) {
  const auto refuse = [&](const std::function<void(TrainConfig&)>& spoil, std::initializer_list<std::string> words) {
    TrainConfig config;
    spoil(config);
    expect_error<ConfigError>([&] { config.validate(registry_); }, words);
  };
  EXPECT_NO_THROW(TrainConfig().validate(registry_));
  refuse([](TrainConfig& c) { c.strategy = "locl"; }, {"did you mean 'local'"});
  refuse([](TrainConfig& c) { c.set = {"wires=fp16"}; }, {"strategy ssgd", "did you mean 'wire'"});
  refuse([](TrainConfig& c) { c.optimizer = {.momentum = 0, .nesterov = true}; }, {"nesterov"});
  refuse([](TrainConfig& c) { c.task.task = "imges"; }, {"images"});
  const std::string file = dir_.write("a_file", "");
  refuse([&](TrainConfig& c) { c.out = file + "/below"; }, {"--out", file + "/below"});
}

TEST_F(TrainConfigFile, ValidateMakesTheOutputDirectory) {
  TrainConfig config;
  config.out = dir_.path() / "a" / "b";
  config.validate(registry_);
  EXPECT_TRUE(std::filesystem::is_directory(config.out));
}

}  // namespace
}  // namespace slipstream
