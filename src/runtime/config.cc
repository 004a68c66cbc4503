// SPDX-License-Identifier: Apache-2.0
#include "runtime/config.h"

#include <slipstream/base/error.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "engine/checkpointer.h"
#include "strategy/contender.h"
#include "watch/dashboard.h"

namespace slipstream {
namespace {

std::string as_text(const toml::node& node, const std::string& key) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  fail<ConfigError>("{} should be a text, a number or true/false", key);
}

std::string toml_value(const Option& option, const std::string& value) {
  const bool bare = option.kind == "integer" || option.kind == "number" || option.kind == "true|false";
  if (bare) return value;
  std::ostringstream quoted;
  quoted << toml::value<std::string>(value);
  return quoted.str();
}

}  // namespace

void TrainConfig::describe(OptionSet& o) {
  o.text("strategy", strategy, kChangesResult,
         "the algorithm, NAME or NAME:KEY=VALUE,…: see `slipstream list` and `slipstream explain NAME`");
  o.integer("epochs", epochs, {1, 1'000'000}, kChangesResult, "passes over the training data");
  o.integer("steps", steps, {0, 1'000'000'000}, kChangesResult, "stop after this many steps; 0: after the epochs");
  o.integer("seed", seed, {0, 1'000'000'000'000}, kChangesResult, "of initial weights and sample order");
  task.describe(o);
  optimizer.describe(o);
  o.text("no_decay", no_decay, kChangesResult,
         "parameters without weight_decay: parts of their names, separated by commas, such as bias,norm");
  schedule.describe(o);
  launch.describe(o);
  o.text("out", out, kChangesSpeed,
         "directory for model.pt, summary.json, the ledger and the trace; none: keep nothing");
  o.boolean("overwrite", overwrite, kChangesSpeed, "replace the results of an earlier run in --out");
  o.text("checkpoint_every", checkpoint_every, kChangesSpeed,
         "save all state so often: a number of steps, or a time such as 90s, 10min, 2h; training goes on meanwhile");
  o.text("checkpoint_dir", checkpoint_dir, kChangesSpeed,
         "directory for checkpoints, one that all workers see; none: checkpoints/ in --out");
  o.integer("keep", keep, {0, 1'000'000}, kChangesSpeed, "newest checkpoints that are kept; 0: all");
  o.text("resume", resume, kChangesSpeed,
         "go on from this checkpoint or the newest of this directory, bit for bit as if the run had never stopped; "
         "latest: the newest of --checkpoint-dir, or from the start where there is none");
  o.text(
      "init", init, kChangesResult,
      "begin with the weights of this model.pt, safetensors file, checkpoint or --out of another run (read by rank 0)");
  o.integer("eval_every", eval_every, {0, 1'000'000'000}, kChangesSpeed,
            "evaluate on the test data every so many steps, with the mean of all workers' weights; 0: at the end only");
  o.integer("trace_steps", trace_steps, {0, 100000}, kChangesSpeed, "steps recorded in trace.json");
  o.text(
      "dashboard", dashboard, kChangesSpeed,
      "PORT or ADDRESS:PORT where rank 0 shows the run while it trains, and /metrics for Prometheus; 0: any free port; "
      "without an address this machine only");
  o.boolean("tensorboard", tensorboard, kChangesSpeed, "write event files for TensorBoard to tensorboard/ in --out");
  o.boolean("json", json, kChangesSpeed, "print the summary as one line of JSON, and nothing else, on standard output");
  o.boolean("verbose", verbose, kChangesSpeed, "also print what the strategy decides on the way, such as its plan");
}

void TrainConfig::take_set_from_strategy() {
  const Contender given = Contender::parse(strategy);
  strategy = given.name;
  set.insert(set.begin(), given.set.begin(), given.set.end());
}

OptimizerOptions TrainConfig::grouped_optimizer() const {
  OptimizerOptions grouped = optimizer;
  if (no_decay.empty()) return grouped;
  if (optimizer.weight_decay == 0.0) {
    fail<ConfigError>("no_decay={} exempts parameters from weight_decay, which is 0; set weight_decay or leave it out",
                      no_decay);
  }
  ParameterGroup exempt{.weight_decay = 0.0};
  std::istringstream parts(no_decay);
  for (std::string part; std::getline(parts, part, ',');) {
    const bool plain = !part.empty() && part.find_first_of("*?[]\\ ") == std::string::npos;
    if (!plain) {
      fail<ConfigError>("no_decay={} should be parts of parameter names, separated by commas, such as bias,norm",
                        no_decay);
    }
    exempt.names.push_back("*" + part + "*");
  }
  grouped.groups.push_back(std::move(exempt));
  return grouped;
}

void TrainConfig::load_toml(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) {
    fail<ConfigError>("--config {}: {}", path, std::filesystem::exists(path) ? "this is not a file" : "no such file");
  }
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& e) {
    fail<ConfigError>("{}:{}: {}", path, e.source().begin.line, e.description());
  }
  OptionSet options("configuration");  // errors get the file's name below
  describe(options);
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    try {
      if (name == "set") {
        const auto* pairs = node.as_table();
        if (pairs == nullptr) fail<ConfigError>("set should be a table: [set]");
        for (const auto& [k, v] : *pairs) set.push_back(std::string(k.str()) + "=" + as_text(v, std::string(k.str())));
      } else {
        options.set(name, as_text(node, name));
      }
    } catch (const ConfigError& e) {
      fail<ConfigError>("{}:{}: {}", path, node.source().begin.line, e.what());
    }
  }
}

std::string TrainConfig::to_toml(const Registry& registry) const {
  TrainConfig copy = *this;
  OptionSet options("configuration");
  copy.describe(options);
  std::string text;
  for (const Option& option : options.all()) {
    const std::string value = option.get();
    const bool of_one_run = option.name == "rank" || option.name == "world_size" || option.name == "master_addr" ||
                            option.name == "master_port" || option.name == "resume" || option.name == "overwrite" ||
                            option.name == "dashboard";
    if (of_one_run || (option.kind == "text" && value.empty())) continue;
    if (option.name == "workers" && launch.workers == 0) continue;  // not given
    text += fmt::format("{} = {}\n", option.name, toml_value(option, value));
  }
  text += "\n[set]\n";
  const auto configured = registry.configure(strategy, set);
  for (const Option& option : configured.options.all()) {
    text += fmt::format("{} = {}\n", option.name, toml_value(option, option.get()));
  }
  return text;
}

std::string TrainConfig::checkpoint_folder() const {
  return checkpoint_dir.empty() && !out.empty() ? out + "/checkpoints" : checkpoint_dir;
}

void TrainConfig::validate(const Registry& registry) const {
  const bool saves = !CheckpointEvery::parse(checkpoint_every).never();
  if ((saves || resume == "latest") && checkpoint_folder().empty()) {
    fail<ConfigError>("there is no directory for checkpoints; add --checkpoint-dir DIR or --out DIR");
  }
  if (!dashboard.empty()) HttpServer::Place::parse(dashboard, Dashboard::kFlag);
  if (tensorboard && out.empty()) fail<ConfigError>("--tensorboard writes to a folder of --out; add --out DIR");
  if (!registry.configure(strategy, set).make()->needs_servers() && launch.servers > 0) {
    fail<ConfigError>("strategy {} uses no servers; leave out --servers {}", strategy, launch.servers);
  }
  make_optimizer(grouped_optimizer(), 0);
  (void)task.resolved();
  if (out.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (error || access(out.c_str(), W_OK) != 0) {
    fail<ConfigError>("cannot write to --out {}: {}", out, error ? error.message() : std::strerror(errno));
  }
}

std::vector<std::pair<std::string, std::string>> TrainConfig::alike(const Registry& registry) const {
  TrainConfig shared = *this;
  shared.out.clear();  // these may differ between ranks
  shared.checkpoint_dir.clear();
  shared.resume.clear();
  shared.overwrite = false;
  shared.launch = {};
  shared.launch.sums = launch.sums;
  shared.launch.servers = launch.servers;
  shared.dashboard.clear();
  shared.json = shared.verbose = shared.tensorboard = false;
  std::vector<std::pair<std::string, std::string>> facts;
  const auto add = [&facts](const OptionSet& options) {
    for (const Option& option : options.all()) facts.emplace_back(option.name, option.get());
  };
  OptionSet options("configuration");
  shared.describe(options);
  add(options);
  add(registry.configure(strategy, set).options);
  return facts;
}

}  // namespace slipstream
