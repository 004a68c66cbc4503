// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "cli/verbs.h"
#include "runtime/config.h"
#include "runtime/evaluate.h"

namespace slipstream {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  slipstream eval runs/a\n"
    "      the model of `train --out runs/a`, on the data it was trained for\n"
    "  slipstream eval model.pt --model cnn\n"
    "  slipstream eval runs/b --data other.txt\n"
    "      a text model on another text with the same characters\n";

struct Arguments {
  TaskOptions described;  // only to describe the flags
  OptionSet options{"command line"};
  Given given;
  std::string where;
  bool json = false;
};

}  // namespace

Verb add_eval(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  a->described.describe(a->options);
  CLI::App& verb = *app.add_subcommand("eval", "test a trained model");
  verb.footer(kExamples);
  verb.add_option("MODEL", a->where, "--out of a run, model.pt, a safetensors file, or a checkpoint")->required();
  for (const Option& option : a->options.all()) add_flag(verb, option, "Data and model", a->given);
  verb.add_flag("--json", a->json, "print one line of JSON");
  return [a](const Invocation&) {
    TrainConfig config;
    const std::filesystem::path toml = std::filesystem::path(a->where) / "config.toml";
    std::error_code ignored;
    if (std::filesystem::exists(toml, ignored)) config.load_toml(toml.string());  // the task it was trained for
    OptionSet options("command line");
    config.task.describe(options);
    apply_flags(a->given, options);
    return run_eval(a->where, config.task, a->json);
  };
}

}  // namespace slipstream
