// SPDX-License-Identifier: Apache-2.0
#include "report/report.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/verbs.h"

namespace slipstream {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  slipstream report runs/ssgd runs/lags runs/osp\n"
    "      compares three runs in report.html; speed-ups are over ssgd\n"
    "  slipstream report runs/a --out a.html\n"
    "      one run: its curves, where its time went, its faults\n";

struct Arguments {
  std::vector<std::string> folders;
  std::string out = "report.html";
};

}  // namespace

Verb add_report(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  CLI::App& verb = *app.add_subcommand("report", "one HTML page that shows and compares runs");
  verb.footer(kExamples);
  verb.add_option("RUN_DIR", a->folders, "--out directories of `slipstream train`")->required();
  verb.add_option("--out", a->out, "the file to write; it opens offline")->capture_default_str();
  return [a](const Invocation&) {
    const std::vector<Run> runs = read_runs(a->folders);
    write_report(runs, a->out);
    std::printf("%s\n", fmt::format("{} run{} in {}", runs.size(), runs.size() == 1 ? "" : "s", a->out).c_str());
    return 0;
  };
}

}  // namespace slipstream
