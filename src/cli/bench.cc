// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs.h"
#include "runtime/scale_bench.h"
#include "runtime/train.h"
#include "runtime/wire_bench.h"

namespace slipstream {

Verb add_bench(CLI::App& app) {
  struct Arguments {
    LaunchOptions described;
    Given given;
    WireBenchOptions wire;
    ScaleBenchOptions scale;
    int supervisor_fd = -1;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App& verb = *app.add_subcommand("bench", "measure the wire, simulate growth");
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
  CLI::App& scale = *verb.add_subcommand("scale", "how strategies scale from 1 to many workers, simulated");
  scale.footer(
      "Runs the strategies' own code in virtual time with 1, 2, 4, … workers of a fixed batch each, and prints how\n"
      "close the throughput comes to growing with the workers. Bytes and waits are the strategies', computing takes\n"
      "--compute-ms. The model is a stand-in whose bytes count as --parameters would; with --train it is a small\n"
      "classifier that learns, 128 samples a step over all workers, and the loss stands in the same row.\n"
      "\n"
      "  slipstream bench scale --strategy dasgd --set period=8 --link 1gbit\n"
      "  slipstream bench scale --strategy ssgd --link 100mbit,1ms --parameters 25e6 --compute-ms 300\n"
      "  slipstream bench scale --strategy gtopk gs gs:topology=tree --train --link 1gbit,25ms --max-workers 64\n");
  ScaleBenchOptions& o = a->scale;
  scale.add_option("--strategy", o.strategies, "names from `slipstream list`, each with or without :KEY=VALUE,…")
      ->default_str("dasgd");
  scale.add_option("--set", o.set, "an option of all of them, key=value")->type_name("KEY=VALUE");
  scale.add_option("--link", o.link, "rate of every port, and latency: 100mbit, 1gbit,20ms")->default_str(o.link);
  scale.add_option("--parameters", o.parameters, "of the model")->default_str("1.66e6");
  scale.add_option("--compute-ms", o.compute_ms, "of one step")->default_str("105");
  scale.add_option("--min-workers", o.min_workers, "the first row, or the next power of two")->default_str("1");
  scale.add_option("--max-workers", o.max_workers, "the last row")->default_str("256");
  scale.add_option("--steps", o.steps, "simulated steps; the second half is measured")->default_str("128");
  scale.add_option("--stand-in", o.stand_in, "floats of the stand-in; more of them take longer and round less")
      ->default_str("16384");
  scale.add_flag("--train", o.train, "the stand-in is a classifier that learns: shows its loss");
  scale.add_option("--optimizer", o.optimizer, "sgd, adam or adamw")->default_str("sgd");
  scale.add_option("--lr", o.lr, "learning rate")->default_str("the optimizer's");
  scale.add_option("--seeds", o.seeds, "with --train: so many runs, whose losses are averaged")->default_str("1");
  return [a, called = &scale](const Invocation& invocation) {
    if (called->parsed()) return run_scale_bench(a->scale, invocation.registry);
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
