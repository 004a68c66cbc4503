// SPDX-License-Identifier: Apache-2.0
#include "runtime/train.h"

#include <slipstream/base/error.h>
#include <slipstream/runtime/session.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <optional>

#include "engine/agreement.h"
#include "engine/groups.h"
#include "fabric/c10d_sums.h"
#include "runtime/ledger.h"
#include "runtime/progress.h"
#include "runtime/summary.h"
#include "runtime/trace.h"
#include "server/host.h"
#include "task/torch_task.h"
#include "topology/gather_text.h"

namespace slipstream {
namespace {

constexpr std::int64_t kHashEverySteps = 100;

// The first signal asks for a clean stop; the second takes the default way out. A supervised worker leaves the latter
// to its supervisor: `kill -INT -GROUP` reaches it twice, directly and passed on.
void stop_on_signals(bool supervised) {
  struct sigaction action {};
  action.sa_handler = [](int) { Session::request_stop(); };
  action.sa_flags = (supervised ? 0 : SA_RESETHAND) | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

// Different flags on different machines would end in a hang or in nonsense.
void require_same_config(Fabric& net, const TrainConfig& config, const Registry& registry) {
  TrainConfig shared = config;
  shared.out.clear();  // these may differ
  shared.launch = {};
  shared.launch.sums = config.launch.sums;
  shared.launch.servers = config.launch.servers;
  shared.json = shared.verbose = false;
  Facts facts;
  OptionSet options("configuration");
  shared.describe(options);
  add_options(facts, options);
  add_options(facts, registry.configure(config.strategy, config.set).options);
  require_same(net, facts, "start all of them with the same flags");
}

// Only rank 0 writes the trace, but all must take part in it: its --out decides, whatever the others were given.
bool is_traced(Fabric& net, const TrainConfig& config) {
  const char mine = config.out.empty() ? 0 : 1;
  std::vector<char> all(static_cast<std::size_t>(net.size()));
  net.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))).wait();
  return all[0] != 0;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) fail<ConfigError>("cannot write {}; is the disk full?", path);
}

double mean_over_ranks(Fabric& net, double mine) {
  std::vector<double> all(static_cast<std::size_t>(net.size()));
  net.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))).wait();
  return std::accumulate(all.begin(), all.end(), 0.0) / net.size();
}

Evaluation evaluate(Fabric& net, TorchTask& task) {
  const Evaluation mine = task.evaluate(net.rank(), net.size());
  std::vector<Evaluation> all(static_cast<std::size_t>(net.size()));
  net.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))).wait();
  Evaluation total;
  for (const Evaluation& part : all) total += part;
  return total;
}

}  // namespace

namespace {

// How join_fabric learns that the user wants to stop.
Rendezvous stoppable(Rendezvous at) {
  at.interrupted = [] { return Session::stop_requested(); };
  return at;
}

int train_on(MeshFabric& net, const TrainConfig& config, const Registry& registry, const Rendezvous& at) {
  const bool speaks = net.rank() == 0;
  require_same_config(net, config, registry);

  TaskOptions task_options = config.task;
  task_options.seed = static_cast<std::uint64_t>(config.seed);
  const auto task = make_task(task_options, net.rank(), net.size());
  const std::int64_t per_epoch = task->steps_per_epoch();
  const std::int64_t total = config.steps > 0 ? config.steps : config.epochs * per_epoch;
  LrSchedule schedule = config.schedule;
  schedule.total_steps = total;
  const double base_lr = config.optimizer.base_lr();
  schedule.validate(base_lr);
  const OptimizerOptions optimizer = config.grouped_optimizer();
  Session session(net, task->module(),
                  {.strategy = config.strategy,
                   .set = config.set,
                   .optimizer = optimizer,
                   .lr = [&](std::int64_t t) { return schedule.at(t, base_lr); },
                   .registry = registry});
  if (speaks) {
    std::fprintf(
        stderr, "%s",
        fmt::format("training {} on {} with {}: {} parameters, {} workers{}{}, {} steps of {} samples\n",
                    task->options().model, task->options().task, config.strategy, session.model().count(), net.size(),
                    at.servers > 0 ? fmt::format(" and {} servers", at.servers) : "",
                    net.size() > 1 ? " (data over " + net.interface() + ")" : "", total, task->samples_per_step())
            .c_str());
    for (const ParameterGroup& group : optimizer.groups) {
      std::fprintf(stderr, "%s",
                   fmt::format("without weight decay: {} of {} tensors ({})\n", tensors_in(group, session.model()),
                               session.model().slots().size(), config.no_decay)
                       .c_str());
    }
  }

  Summary summary;
  std::optional<Ledger> ledger;
  std::optional<Trace> trace;
  if (!config.out.empty()) ledger.emplace(fmt::format("{}/ledger.rank{}.jsonl", config.out, net.rank()));
  if (is_traced(net, config)) trace.emplace(net.rank(), clock_offset(net), config.trace_steps);
  std::optional<Progress> progress;
  if (speaks) progress.emplace(isatty(STDERR_FILENO) == 1, total, static_cast<double>(task->samples_per_step()));
  session.on_record = [&](const StepRecord& record, const Traffic& traffic) {
    summary.steps.add(record);
    if (trace) trace->add(record, traffic, net.clock().now());
  };

  double last_loss = std::nan("");
  const double began = net.clock().now();
  try {
    for (std::int64_t t = 0; t < total; ++t) {
      double loss = 0;
      for (std::int64_t micro = 0; micro < task->options().accumulate; ++micro) {
        std::optional<Session::Hold> hold;
        if (micro + 1 < task->options().accumulate) hold.emplace(session.hold());
        auto part = task->loss(t / per_epoch, t % per_epoch, micro);
        part.backward();
        loss += part.item<double>();
      }
      last_loss = loss;
      const StepRecord& record = session.step(loss);
      if (ledger) {
        const bool hash = (t + 1) % kHashEverySteps == 0;
        ledger->write(record, t / per_epoch, hash ? std::optional(session.weights_hash()) : std::nullopt);
      }
      if (progress) {
        if (config.verbose && !record.news.empty()) progress->say(fmt::format("step {}: {}", t, record.news));
        progress->step(record);
      }
    }
  } catch (const Interrupted& stop) {  // on all ranks, at the same step
    summary.interrupted = true;
    if (progress) progress->say(stop.what());
    if (!speaks && !at.supervised) std::fprintf(stderr, "slipstream: %s\n", stop.what());
  }
  const double ended = net.clock().now();
  if (progress) progress->finish();
  session.finish();

  summary.agreement = session.agreement();
  const Evaluation evaluation = evaluate(net, *task);
  summary.strategy = config.strategy;
  const auto configured = registry.configure(config.strategy, config.set);
  for (const Option& option : configured.options.all()) {
    summary.options.emplace_back(option.name, option.get());
  }
  summary.task = task->options().task;
  summary.model = task->options().model;
  summary.parameters = static_cast<std::int64_t>(session.model().count());
  summary.workers = net.size();
  summary.servers = at.servers;
  summary.seed = config.seed;
  summary.wall_seconds = ended - began;
  summary.samples_per_second =
      1e3 * static_cast<double>(task->samples_per_step()) / summary.steps.mean_ms(&StepRecord::seconds);
  summary.final_loss = mean_over_ranks(net, last_loss);
  summary.metric = task->metric();
  summary.metric_value = summary.metric == "test_accuracy" ? evaluation.accuracy() : evaluation.mean_loss();
  summary.out = config.out;
  if (trace) {
    const auto events = gather_text(net, trace->events());
    if (speaks) write_file(config.out + "/trace.json", Trace::document(events));
  }
  if (speaks) {
    if (!config.out.empty()) {
      session.save(config.out + "/model.pt");
      TrainConfig resolved = config;
      resolved.launch.workers = net.size();
      resolved.task = task->options();
      resolved.optimizer.lr = base_lr;
      write_file(config.out + "/config.toml", resolved.to_toml(registry));
      write_file(config.out + "/summary.json", summary.to_json() + "\n");
    }
    std::printf("%s", (config.json ? summary.to_json() + "\n" : summary.to_text()).c_str());
    std::fflush(stdout);
  }
  float done = 1;
  net.sum(std::span(&done, 1)).wait();  // nobody leaves before all are done
  return summary.interrupted ? Interrupted("").exit_code() : 0;
}

}  // namespace

int run_worker(const TrainConfig& config, const Registry& registry, const Rendezvous& at) {
  stop_on_signals(config.launch.supervised());
  const auto net = join_fabric(stoppable(at));
  try {
    return train_on(*net, config, registry, at);
  } catch (const FabricError&) {  // all know it already
    throw;
  } catch (const DivergedError&) {  // all ranks agreed on it
    throw;
  } catch (const ConfigError& e) {
    net->announce(kUsersFault + fmt::format("{}", e.what()));
    throw;
  } catch (const std::exception& e) {
    net->announce(fmt::format("rank {} ended: {}", at.rank, e.what()));
    throw;
  }
}

// Ctrl-C reaches all processes of a job at once: the workers stop where they agree, and then take their leave of us.
int run_server(const Rendezvous& at) {
  stop_on_signals(at.supervised);
  const auto net = join_fabric(stoppable(at));
  const bool stopped = ServerHost(*net).wait();
  if (stopped && !at.supervised) std::fprintf(stderr, "slipstream: the workers were asked to stop\n");
  return stopped ? Interrupted("").exit_code() : 0;
}

}  // namespace slipstream
