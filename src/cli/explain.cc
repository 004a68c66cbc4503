// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "base/wrap.h"
#include "cli/verbs.h"
#include "sim/state_copies.h"

namespace slipstream {
namespace {

constexpr std::size_t kColumns = 80;

std::string copies(const StrategyInfo& info, const OptimizerOptions& optimizer) {
  const auto held = state_copies(info, optimizer);
  return held ? fmt::format("{:.2g} copies of the model", *held) : "(refused)";
}

}  // namespace

std::string explain(const StrategyInfo& info) {
  const auto lines_of = [](const std::string& line, std::size_t indent) { return wrap(line, kColumns, indent) + "\n"; };
  std::string text =
      lines_of(fmt::format("{}: {}", info.name, info.title), 2) + "\n" + lines_of("  " + info.paper, 2) + "\n";
  for (const std::string& line : info.pseudo_code) text += "  " + line + "\n";
  text += "\n" + lines_of("sends      " + info.bytes_per_step, 11) + lines_of("waits for  " + info.waits_for, 11);
  text += lines_of(fmt::format("remembers  {} with sgd, {} with adamw, beside weights and gradients", copies(info, {}),
                               copies(info, {.kind = "adamw"})),
                   11);
  if (!info.notes.empty()) text += "\n";
  for (const std::string& note : info.notes) text += lines_of("- " + note, 2);

  const auto configured = info.configure();
  for (const auto& [changes, title] : {std::pair{kChangesResult, "options that change the result"},
                                       std::pair{kChangesSpeed, "options that change only speed"}}) {
    std::string lines;
    for (const Option& option : configured.options.all()) {
      if (option.changes != changes) continue;
      lines += lines_of(fmt::format("  --set {:<24} {}{}", option.name + "=" + option.default_value, option.help,
                                    option.allowed.empty() ? "" : " (" + option.allowed + ")"),
                        33);
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
