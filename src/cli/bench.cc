// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs.h"
#include "runtime/train.h"
#include "runtime/wire_bench.h"

namespace slipstream {

Verb add_bench(CLI::App& app) {
  struct Arguments {
    LaunchOptions described;
    Given given;
    WireBenchOptions wire;
    int supervisor_fd = -1;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App& verb = *app.add_subcommand("bench", "measure the wire");
  verb.require_subcommand(1);
  CLI::App& wire = *verb.add_subcommand("wire", "sums, pushes and pulls by size, verified while timed");
  wire.footer(
      "Times sums of 4 B to 64 MiB between N workers and checks every result.\n"
      "Then the same sizes pushed to the servers and pulled back, spread over all of them.\n"
      "algorithm bandwidth = bytes / time; bus bandwidth = 2 (P-1)/P of it: what each port carried.\n"
      "\n"
      "  slipstream bench wire --workers 2 --lab 1gbit\n");
  OptionSet options("command line");
  a->described.describe(options);
  for (const Option& option : options.all()) add_flag(wire, option, "Workers and network", a->given);
  wire.add_option("--max-mib", a->wire.max_mib, "largest size")->default_str("64");
  wire.add_option("--repeats", a->wire.repeats, "timed sums per size")->default_str("20");
  wire.add_option("--wire", a->wire.wire, "number format: fp32, fp16, bf16")->default_str("fp32");
  wire.add_option("--supervisor-fd", a->supervisor_fd)->group("");
  return [a](const Invocation& invocation) {
    LaunchOptions launch_options;
    OptionSet set("command line");
    launch_options.describe(set);
    apply_flags(a->given, set);
    launch_options.supervisor_fd = a->supervisor_fd;
    return launch(launch_options, invocation,
                  [&](const Rendezvous& at) { return at.serves() ? run_server(at) : run_wire_bench(a->wire, at); });
  };
}

}  // namespace slipstream
