// SPDX-License-Identifier: Apache-2.0
#include "runtime/train.h"

#include "cli/verbs.h"

namespace slipstream {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  slipstream train --workers 4 --strategy dasgd:period=8 --model mlp --epochs 3\n"
    "  slipstream train --lab 100mbit --steps 50\n"
    "      on a shaped 100 Mb/s network (root)\n"
    "  slipstream train --strategy ssd --servers 1\n"
    "      gradients to a server process, weights back every few steps\n"
    "  slipstream train --out runs/a --checkpoint-every 10min --resume latest\n"
    "      goes on where it was stopped\n"
    "  slipstream train --dashboard 8080\n"
    "      shows the run at http://127.0.0.1:8080/ while it trains\n"
    "  slipstream train --task text --data book.txt\n"
    "      a character-level language model on any UTF-8 file\n"
    "  torchrun --nproc_per_node 2 --no_python slipstream train …\n"
    "      or mpirun -n 2 …, srun -n 2 …\n"
    "  slipstream train --rank 0 --world-size 2 --master-addr HOST0 …\n"
    "      by hand, once on every machine\n";

struct Arguments {
  TrainConfig described;  // only to describe the flags: the real one starts from defaults when the verb runs
  OptionSet options{"command line"};
  Given given;
  std::vector<std::string> set;
  std::string config_file;
  int supervisor_fd = -1;
};

const char* group_of(const std::string& name) {
  const auto in = [&name](auto&&... names) { return ((name == names) || ...); };
  if (in("strategy", "epochs", "steps", "seed", "out", "overwrite", "eval_every", "json", "verbose")) return "The job";
  if (in("trace_steps", "dashboard", "tensorboard")) return "Watching";
  if (in("checkpoint_every", "checkpoint_dir", "keep", "resume", "init")) return "Checkpoints";
  if (in("task", "data", "model", "batch", "accumulate", "width", "depth", "heads", "context")) return "Data and model";
  if (in("workers", "servers", "rank", "world_size", "master_addr", "master_port", "interface", "timeout",
         "join_timeout", "secret_file", "streams", "sums", "lab", "elastic", "max_restarts", "chaos", "chaos_seed")) {
    return "Workers and network";
  }
  return "Optimizer and learning rate";
}

}  // namespace

Verb add_train(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  a->described.describe(a->options);
  CLI::App& verb = *app.add_subcommand("train", "train a model on N workers");
  verb.footer(kExamples);
  for (const Option& option : a->options.all()) add_flag(verb, option, group_of(option.name), a->given);
  verb.add_option("--set", a->set, "an option of the strategy, may be given several times (see `slipstream explain`)")
      ->type_name("key=value")
      ->group("The job");
  verb.add_option("--config", a->config_file, "TOML file with the same names as these flags (lr_schedule = …, [set] …)")
      ->type_name("FILE")
      ->group("The job");
  verb.add_option("--supervisor-fd", a->supervisor_fd)->group("");

  return [a](const Invocation& invocation) {
    TrainConfig config;
    if (!a->config_file.empty()) config.load_toml(a->config_file);
    OptionSet options("command line");
    config.describe(options);
    apply_flags(a->given, options);
    config.set.insert(config.set.end(), a->set.begin(), a->set.end());
    config.take_set_from_strategy();
    config.launch.supervisor_fd = a->supervisor_fd;
    config.validate(invocation.registry);
    return launch(config.launch, invocation, [&](const Rendezvous& at) {
      return at.serves() ? run_server(at) : run_worker(config, invocation.registry, at);
    });
  };
}

}  // namespace slipstream
