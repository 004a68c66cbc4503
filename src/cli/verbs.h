// SPDX-License-Identifier: Apache-2.0
//
// The verbs of the command line, one file each. A verb adds its subcommand to the app and returns what to run if that
// subcommand was called.
#pragma once

#include <slipstream/base/option.h>
#include <slipstream/strategy/registry.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/launch.h"

namespace slipstream {

struct Invocation {
  std::vector<std::string> arguments;  // the whole command line, argv[0] replaced by what starts this program
  const Registry& registry;
};

using Verb = std::function<int(const Invocation&)>;

Verb add_train(CLI::App& app);
Verb add_list(CLI::App& app);
Verb add_explain(CLI::App& app);
Verb add_bench(CLI::App& app);
Verb add_lab(CLI::App& app);
Verb add_ckpt(CLI::App& app);
Verb add_eval(CLI::App& app);
Verb add_report(CLI::App& app);
Verb add_compare(CLI::App& app);
Verb add_plan(CLI::App& app);

std::string explain(const StrategyInfo& info);  // what the verb prints

// Values of flags made from an OptionSet, in the order given: they are applied after the configuration file.
using Given = std::vector<std::pair<std::string, std::string>>;
void add_flag(CLI::App& verb, const Option& option, const std::string& group, Given& given);
void apply_flags(const Given& given, OptionSet& options);

// Runs `work` as a worker, or supervises local workers that do, depending on flags and environment.
int launch(const LaunchOptions& options, const Invocation& invocation,
           const std::function<int(const Rendezvous&)>& work);

}  // namespace slipstream
