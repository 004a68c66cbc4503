// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs.h"
#include "launch/lab_run.h"

namespace slipstream {

Verb add_lab(CLI::App& app) {
  struct Arguments {
    int hosts = 2;
    std::string rate = "none";
    std::vector<std::string> command;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App& verb = *app.add_subcommand("lab", "run any command on N hosts of a shaped network inside this machine");
  verb.footer(
      "Every host is a network namespace on one switch, its port shaped both ways. Host i sees RANK=i, WORLD_SIZE,\n"
      "MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME. Needs root.\n"
      "\n"
      "  slipstream lab --hosts 2 --rate 100mbit -- python3 my_ddp_script.py\n"
      "  slipstream lab --hosts 2 --rate 1gbit,5ms,0.1% -- python3 my_ddp_script.py\n");
  verb.add_option("--hosts", a->hosts, "how many")->default_str("2");
  verb.add_option("--rate", a->rate,
                  "of every port: 100mbit, 1gbit, none; with a one-way delay: 100mbit,25ms; and losses: 1gbit,5ms,0.1%")
      ->default_str("none");
  verb.add_option("COMMAND", a->command, "after --")->required();
  return [a](const Invocation&) { return run_in_lab(LabSpec::parse(a->rate), a->hosts, a->command); };
}

}  // namespace slipstream
