// SPDX-License-Identifier: Apache-2.0
#include "runtime/train.h"

#include <fmt/chrono.h>
#include <slipstream/base/error.h>
#include <slipstream/runtime/session.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>

#include "checkpoint/atomic_file.h"
#include "checkpoint/folder.h"
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

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

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
  shared.checkpoint_dir.clear();
  shared.resume.clear();
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

bool rank_0s(Fabric& net, bool mine) {
  const char flag = mine ? 1 : 0;
  std::vector<char> all(static_cast<std::size_t>(net.size()));
  net.gather(std::as_bytes(std::span(&flag, 1)), std::as_writable_bytes(std::span(all))).wait();
  return all[0] != 0;
}

std::string ledger_name(int rank) { return fmt::format("ledger.rank{}.jsonl", rank); }

// Before any rank writes to --out: an earlier run's results stay, unless the user said otherwise.
void protect_earlier_run(const TrainConfig& config, int rank) {
  if (config.overwrite || !config.resume.empty()) return;
  for (const std::string& name : {std::string("summary.json"), std::string("model.pt"), ledger_name(rank)}) {
    std::error_code ignored;
    if (config.out.empty() || !std::filesystem::exists(config.out + "/" + name, ignored)) continue;
    fail<ConfigError>(
        "--out {} holds {} of an earlier run; use another directory, --overwrite to replace it, or --resume latest to "
        "go on from its checkpoints",
        config.out, name);
  }
  if (!config.checkpoint_every.empty() && has_checkpoint(config.checkpoint_folder())) {
    fail<ConfigError>("{} holds checkpoints of an earlier run; use --resume latest to go on from them, or --overwrite",
                      config.checkpoint_folder());
  }
}

// Where to go on from; empty: from the start. The same on all ranks.
std::string place_to_resume(Fabric& net, const TrainConfig& config) {
  if (config.resume != "latest") return config.resume;
  if (rank_0s(net, has_checkpoint(config.checkpoint_folder()))) return config.checkpoint_folder();
  if (net.rank() == 0) {
    std::fprintf(stderr, "slipstream: %s has no checkpoint yet: starting from the beginning\n",
                 config.checkpoint_folder().c_str());
  }
  return "";
}

// What decides which samples come at which step, and what the model is.
std::vector<std::pair<std::string, std::string>> facts_of(TaskOptions task, std::int64_t seed) {
  std::vector<std::pair<std::string, std::string>> facts{{"seed", std::to_string(seed)}};
  OptionSet options("task");
  task.describe(options);
  for (const Option& option : options.all()) {
    if (option.name != "data") facts.emplace_back(option.name, option.get());  // it may lie elsewhere
  }
  return facts;
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

// A run that was asked to stop can go on from here.
void save_on_stop(Session& session, const TrainConfig& config, const std::function<void(const std::string&)>& warn) {
  try {
    session.save_checkpoint(config.checkpoint_folder());
  } catch (const ConfigError& e) {
    warn(e.what());
  }
}

// model.pt and what tells of it. The reason where not all could be written.
std::optional<ConfigError> write_results(const Session& session, const TorchTask& task, const TrainConfig& resolved,
                                         const Registry& registry, const Summary& summary, const std::string& trace) {
  try {
    const std::filesystem::path out = resolved.out;
    std::filesystem::remove(out / "summary.json");  // an earlier one tells nothing of this run
    if (!trace.empty()) write_atomically(out / "trace.json", trace);
    session.save(out / "model.pt");
    if (const std::string vocabulary = task.vocabulary(); !vocabulary.empty()) {
      write_atomically(out / "vocabulary.txt", vocabulary);
    }
    write_atomically(out / "config.toml", resolved.to_toml(registry));
    write_atomically(out / "summary.json", summary.to_json() + "\n");
  } catch (const ConfigError& e) {
    return e;
  } catch (const std::filesystem::filesystem_error& e) {
    return ConfigError(e.what());
  }
  return {};
}

int train_on(MeshFabric& net, const TrainConfig& config, const Registry& registry, const Rendezvous& at) {
  const bool speaks = net.rank() == 0;
  protect_earlier_run(config, net.rank());
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
  std::optional<Progress> progress;
  const auto warn = [&](const std::string& text) {
    if (progress) {
      progress->say("slipstream: " + text);
    } else {
      std::fprintf(stderr, "slipstream: rank %d: %s\n", net.rank(), text.c_str());
    }
  };
  Session session(net, task->module(),
                  {.strategy = config.strategy,
                   .set = config.set,
                   .optimizer = optimizer,
                   .lr = [&](std::int64_t t) { return schedule.at(t, base_lr); },
                   .registry = registry,
                   .checkpoint = {config.checkpoint_folder(), config.checkpoint_every, config.keep, warn,
                                  facts_of(task->options(), config.seed)}});
  const std::string resumed_from = place_to_resume(net, config);
  const std::int64_t first = resumed_from.empty() ? 0 : session.resume(resumed_from);
  if (speaks && first > 0) std::fprintf(stderr, "resuming at step %lld\n", static_cast<long long>(first));
  if (speaks) {
    std::fprintf(stderr, "%s",
                 fmt::format("training {} on {} with {}: {} parameters, {} steps\n"
                             "{} workers{}{}, {} samples a step\n",
                             task->options().model, task->options().task, config.strategy, session.model().count(),
                             total, net.size(), at.servers > 0 ? fmt::format(" and {} servers", at.servers) : "",
                             net.size() > 1 ? " (data over " + net.interface() + ")" : "", task->samples_per_step())
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
  if (!config.out.empty()) ledger.emplace(config.out + "/" + ledger_name(net.rank()), first);
  // Only rank 0 writes the trace, but all must take part in it: its --out decides, whatever the others were given.
  if (rank_0s(net, !config.out.empty())) trace.emplace(net.rank(), clock_offset(net), config.trace_steps);
  if (speaks) progress.emplace(isatty(STDERR_FILENO) == 1, total, static_cast<double>(task->samples_per_step()));
  session.on_record = [&](const StepRecord& record, const Traffic& traffic) {
    summary.steps.add(record);
    if (trace) trace->add(record, traffic, net.clock().now());
    if (!ledger) return;
    const bool hash = (record.t + 1) % kHashEverySteps == 0;
    ledger->write(record, record.t / per_epoch, hash ? std::optional(session.weights_hash()) : std::nullopt);
  };

  double last_loss = std::nan("");
  const double began = net.clock().now();
  try {
    for (std::int64_t t = first; t < total; ++t) {
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
  if (summary.interrupted && !config.checkpoint_every.empty()) save_on_stop(session, config, warn);
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
  summary.batch = task->options().batch;
  summary.optimizer = config.optimizer.kind;
  summary.lr = base_lr;
  summary.host = host_name();
  summary.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  summary.first_step = first;
  summary.seed = config.seed;
  summary.wall_seconds = ended - began;
  summary.samples_per_second =
      1e3 * static_cast<double>(task->samples_per_step()) / summary.steps.mean_ms(&StepRecord::seconds);
  summary.final_loss = mean_over_ranks(net, last_loss);
  summary.metric = task->metric();
  summary.metric_value = summary.metric == "test_accuracy" ? evaluation.accuracy() : evaluation.mean_loss();
  summary.out = config.out;
  const auto events = trace ? gather_text(net, trace->events()) : std::vector<std::string>();
  std::optional<ConfigError> unwritten;
  if (speaks) {
    if (!config.out.empty()) {
      TrainConfig resolved = config;
      resolved.launch.workers = net.size();
      resolved.task = task->options();
      resolved.optimizer.lr = base_lr;
      unwritten = write_results(session, *task, resolved, registry, summary, trace ? Trace::document(events) : "");
    }
    std::printf("%s", (config.json ? summary.to_json() + "\n" : summary.to_text()).c_str());
    std::fflush(stdout);
  }
  float done = 1;
  net.sum(std::span(&done, 1)).wait();  // nobody leaves before all are done
  if (unwritten) throw *unwritten;
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
