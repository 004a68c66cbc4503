// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "cli/verbs.h"
#include "runtime/state_copies.h"

namespace slipstream {
namespace {

std::string copies(const StrategyInfo& info, const OptimizerOptions& optimizer) {
  const auto held = state_copies(info, optimizer);
  return held ? fmt::format("{:.2g} copies of the model", *held) : "(refused)";
}

}  // namespace

std::string explain(const StrategyInfo& info) {
  std::string text = fmt::format("{}: {}\n\n  {}\n\n", info.name, info.title, info.paper);
  for (const std::string& line : info.pseudo_code) text += "  " + line + "\n";
  text += fmt::format("\nsends      {}\nwaits for  {}\n", info.bytes_per_step, info.waits_for);
  text += fmt::format("remembers  {} with sgd, {} with adamw, beside weights and gradients\n", copies(info, {}),
                      copies(info, {.kind = "adamw"}));
  if (!info.notes.empty()) text += "\n";
  for (const std::string& note : info.notes) text += "- " + note + "\n";

  const auto configured = info.configure();
  for (const auto& [changes, title] : {std::pair{kChangesResult, "options that change the result"},
                                       std::pair{kChangesSpeed, "options that change only speed"}}) {
    std::string lines;
    for (const Option& option : configured.options.all()) {
      if (option.changes != changes) continue;
      lines += fmt::format("  --set {:<24} {}{}\n", option.name + "=" + option.default_value, option.help,
                           option.allowed.empty() ? "" : " (" + option.allowed + ")");
    }
    if (!lines.empty()) text += fmt::format("\n{}, with their defaults\n{}", title, lines);
  }
  return text;
}

Verb add_explain(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  app.add_subcommand("explain", "what a strategy does, sends and waits for, and its options")
      ->add_option("STRATEGY", *name, "a name from `slipstream list`")
      ->required();
  return [name](const Invocation& invocation) {
    std::printf("%s", explain(invocation.registry.find(*name)).c_str());
    return 0;
  };
}

}  // namespace slipstream
