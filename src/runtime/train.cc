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

#include "base/process_usage.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/folder.h"
#include "engine/agreement.h"
#include "engine/groups.h"
#include "fabric/c10d_sums.h"
#include "runtime/model_file.h"
#include "runtime/out_folder.h"
#include "runtime/watch.h"
#include "server/host.h"
#include "task/torch_task.h"
#include "topology/gather_text.h"
#include "watch/ledger.h"
#include "watch/progress.h"
#include "watch/summary.h"
#include "watch/trace.h"

namespace slipstream {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

constexpr std::int64_t kHashEverySteps = 100;

// The first signal asks for a clean stop; the second has its default effect. A supervised worker leaves the second to
// its supervisor, because `kill -INT -GROUP` reaches the worker twice: directly and passed on.
void stop_on_signals(bool supervised) {
  struct sigaction action {};
  action.sa_handler = [](int) { Session::request_stop(); };
  action.sa_flags = (supervised ? 0 : SA_RESETHAND) | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

bool rank_0s(Fabric& net, bool mine) {
  const char flag = mine ? 1 : 0;
  std::vector<char> all(static_cast<std::size_t>(net.size()));
  net.gather(std::as_bytes(std::span(&flag, 1)), std::as_writable_bytes(std::span(all))).wait();
  return all[0] != 0;
}

// The checkpoint to continue from; empty: start from the beginning. The same on all ranks.
std::string place_to_resume(Fabric& net, const TrainConfig& config) {
  if (config.resume != "latest") return config.resume;
  if (rank_0s(net, has_checkpoint(config.checkpoint_folder()))) return config.checkpoint_folder();
  if (net.rank() == 0) {
    std::fprintf(stderr, "slipstream: %s has no checkpoint yet: starting from the beginning\n",
                 config.checkpoint_folder().c_str());
  }
  return "";
}

// What decides which samples come at which step, and what the model is: must be equal to resume.
std::vector<std::pair<std::string, std::string>> facts_of(TaskOptions task, std::int64_t seed) {
  std::vector<std::pair<std::string, std::string>> facts{{"seed", std::to_string(seed)}};
  OptionSet options("task");
  task.describe(options);
  for (const Option& option : options.all()) {
    if (option.name != "data") facts.emplace_back(option.name, option.get());  // the same data may be elsewhere
  }
  return facts;
}

std::vector<double> by_rank(Fabric& net, double mine) {
  std::vector<double> all(static_cast<std::size_t>(net.size()));
  net.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))).wait();
  return all;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
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

// Lets join_fabric see that the user wants to stop.
Rendezvous stoppable(Rendezvous at) {
  at.interrupted = [] { return Session::stop_requested(); };
  return at;
}

// Saves a checkpoint, so that a run that was asked to stop can continue.
void save_on_stop(Session& session, const TrainConfig& config, const std::function<void(const std::string&)>& warn) {
  try {
    session.save_checkpoint(config.checkpoint_folder());
  } catch (const ConfigError& e) {
    warn(e.what());
  }
}

// Writes model.pt and the files that describe it. Returns the reason if not all could be written.
std::optional<ConfigError> write_results(const Session& session, const TorchTask& task, const TrainConfig& resolved,
                                         const Registry& registry, const Summary& summary, const std::string& trace) {
  try {
    const std::filesystem::path out = resolved.out;
    std::filesystem::remove(out / "summary.json");  // an earlier one is not about this run
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

// One worker's training, from the first group of workers it is in to the end of the job.
class Training {
 public:
  Training(MeshFabric& net, const TrainConfig& config, const Registry& registry, std::unique_ptr<TorchTask> task)
      : net_(net),
        config_(config),
        registry_(registry),
        seat_(net.at().rank),
        task_(std::move(task)),
        base_lr_(config.optimizer.base_lr()),
        optimizer_(config.grouped_optimizer()),
        schedule_(config.schedule),
        session_(net, placed_module(), session_options()) {
    describe();
    watch_.emplace(config, summary_);
    if (speaks()) watch_->serve();
    session_.on_record = [this](const StepRecord& record, const Traffic& traffic) { stepped(record, traffic); };
  }

  int run() {
    for (;;) {
      try {
        if (begun_ == 0) begin();
        take_place(session_.steps());
        if (!ready_) get_ready();
        train();
        return conclude();
      } catch (const GroupFailed& e) {
        regroup(e);
      }
    }
  }

 private:
  bool speaks() const { return net_.rank() == 0; }

  torch::nn::Module& placed_module() {
    take_place(0);
    return task_->module();
  }

  SessionOptions session_options() {
    return {.strategy = config_.strategy,
            .set = config_.set,
            .optimizer = optimizer_,
            .lr = [this](std::int64_t t) { return schedule_.at(t, base_lr_); },
            .registry = registry_,
            .checkpoint = {config_.checkpoint_folder(), config_.checkpoint_every, config_.keep,
                           [this](const std::string& text) { warn(text); }, facts_of(task_->options(), config_.seed)},
            .loop =
                [this](StateVisitor& v) {
                  at_.visit(v);
                  v.integer("begun", begun_);
                  std::int64_t interrupted = summary_.interrupted ? 1 : 0;
                  v.integer("interrupted", interrupted);
                  summary_.interrupted = interrupted != 0;
                },
            .alike = config_.alike(registry_)};
  }

  void warn(const std::string& text) {
    if (progress_) {
      progress_->say("slipstream: " + text);
    } else {
      std::fprintf(stderr, "slipstream: rank %d: %s\n", seat_, text.c_str());
    }
  }

  // Fills in what is known before the first step.
  void describe() {
    summary_.strategy = config_.strategy;
    summary_.options.clear();
    const auto configured = registry_.configure(config_.strategy, config_.set);
    for (const Option& option : configured.options.all()) summary_.options.emplace_back(option.name, option.get());
    summary_.task = task_->options().task;
    summary_.model = task_->options().model;
    summary_.parameters = static_cast<std::int64_t>(session_.model().count());
    summary_.workers = net_.size();
    summary_.servers = net_.at().servers;
    summary_.batch = task_->options().batch;
    summary_.optimizer = config_.optimizer.kind;
    summary_.lr = base_lr_;
    summary_.host = host_name();
    summary_.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    summary_.seed = config_.seed;
  }

  // Takes this worker's part of the data and computes the number of steps; both depend on the number of workers.
  void take_place(std::int64_t done) {
    task_->place(net_.rank(), net_.size());
    const Sampler& sampler = task_->sampler();
    at_ = sampler.first_from(at_);
    total_ = config_.steps > 0 ? config_.steps : done + sampler.steps_until(at_, config_.epochs);
    schedule_.total_steps = std::max<std::int64_t>(total_, 1);
    schedule_.validate(base_lr_);
  }

  // Runs on all ranks of the first group that gets this far: decides where to begin, and whether to trace.
  void begin() {
    const std::string resumed_from = place_to_resume(net_, config_);
    resumed_ = !resumed_from.empty();
    if (resumed_) session_.resume(resumed_from);
    summary_.interrupted = false;  // the checkpoint of a stopped run says so; this is another run
    // Only rank 0 writes the trace, but all must take part in it: its --out decides, whatever the others were given.
    if (rank_0s(net_, !config_.out.empty())) trace_.emplace(net_.rank(), clock_offset(net_), config_.trace_steps);
    begun_ = 1;
  }

  // Once per worker: opens the files it writes and tells the user what is trained.
  void get_ready() {
    ready_ = true;
    first_ = session_.steps();
    if (!config_.out.empty()) ledger_.emplace(config_.out + "/" + ledger_name(seat_), first_);
    began_ = net_.clock().now();
    used_ = ProcessUsage::now();
    if (!speaks()) {
      if (!net_.at().supervised) {
        std::fprintf(stderr, "slipstream: rank %d of %d has joined; rank 0 shows the progress\n", net_.rank(),
                     net_.size());
      }
      return;
    }
    if (first_ > 0) {
      std::fprintf(stderr, "%s at step %lld\n", resumed_ ? "resuming" : "joining", static_cast<long long>(first_));
    }
    const int servers = net_.at().servers;
    std::fprintf(stderr, "%s",
                 fmt::format("training {} on {} with {}: {} parameters, {} steps\n"
                             "{} workers{}{}, {} samples a step\n",
                             task_->options().model, task_->options().task, config_.strategy, session_.model().count(),
                             total_, net_.size(), servers > 0 ? fmt::format(" and {} servers", servers) : "",
                             net_.size() > 1 ? " (data over " + net_.interface() + ")" : "", task_->samples_per_step())
                     .c_str());
    for (const ParameterGroup& group : optimizer_.groups) {
      std::fprintf(stderr, "%s",
                   fmt::format("without weight decay: {} of {} tensors ({})\n", tensors_in(group, session_.model()),
                               session_.model().slots().size(), config_.no_decay)
                       .c_str());
    }
  }

  void note(const StepRecord& record, const Traffic& traffic) {
    summary_.steps.add(record);
    if (trace_) trace_->add(record, traffic);
    watch_->step(record, traffic, static_cast<double>(task_->samples_per_step()), speaks(),
                 [this] { return resolved().to_toml(registry_); });
    if (!ledger_) return;
    const bool hash = (record.t + 1) % kHashEverySteps == 0;
    ledger_->write(record, at_.epoch, hash ? std::optional(session_.weights_hash()) : std::nullopt);
  }

  // The configuration with what was found out since.
  TrainConfig resolved() const {
    TrainConfig made = config_;
    made.launch.workers = net_.size();
    made.task = task_->options();
    made.optimizer.lr = base_lr_;
    return made;
  }

  // The step counts: move on to the next samples.
  void stepped(const StepRecord& record, const Traffic& traffic) {
    note(record, traffic);
    at_ = task_->sampler().after(at_);
  }

  void train() {
    if (speaks() && !progress_) {
      progress_.emplace(isatty(STDERR_FILENO) == 1, total_, static_cast<double>(task_->samples_per_step()));
    }
    const std::int64_t accumulate = task_->options().accumulate;
    try {
      while (session_.steps() < total_ && !summary_.interrupted) {
        double loss = 0;
        for (std::int64_t micro = 0; micro < accumulate; ++micro) {
          std::optional<Session::Hold> hold;
          if (micro + 1 < accumulate) hold.emplace(session_.hold());
          auto part = forward(micro);
          part.backward();
          loss += part.item<double>();
        }
        last_loss_ = loss;
        const StepRecord& record = session_.step(loss);
        if (progress_) {
          const bool decided = record.news.starts_with("auto: ");  // always shown: it says what is trained with
          if (decided || (config_.verbose && !record.news.empty()))
            progress_->say(fmt::format("step {}: {}", record.t, record.news));
          progress_->step(record);
        }
        const bool due = config_.eval_every > 0 && session_.steps() % config_.eval_every == 0;
        if (due && session_.steps() < total_) evaluate_on_the_way();
      }
    } catch (const Interrupted& stop) {  // on all ranks, at the same step
      summary_.interrupted = true;
      if (progress_) progress_->say(stop.what());
      if (!speaks() && !net_.at().supervised) std::fprintf(stderr, "slipstream: %s\n", stop.what());
    }
  }

  torch::Tensor forward(std::int64_t micro) {
    const Session::Forward pass(session_);
    return task_->loss(at_, micro);
  }

  void evaluate_on_the_way() {
    const auto mean = session_.average();
    const double value = task_->judged(evaluate(net_, *task_));
    watch_->evaluated(session_.steps(), task_->metric(), value, speaks());
    if (!speaks()) return;
    progress_->say(fmt::format("step {}: {}", session_.steps(), metric_text(task_->metric(), value)));
    if (ledger_) ledger_->evaluated(session_.steps(), task_->metric(), value);
  }

  // After a failure, or when a worker waits to join: continue in the next group.
  void regroup(const GroupFailed& why) {
    const double began = net_.clock().now();
    const std::int64_t done = session_.steps();
    const bool in_order = dynamic_cast<const GroupChanges*>(&why) != nullptr;
    trace_.reset();  // its clock and ranks were those of the first group
    const Regrouped change = session_.regroup(in_order);
    const double seconds = net_.clock().now() - began;
    if (!in_order) summary_.recoveries.push_back(seconds);
    std::string text =
        fmt::format("{}; group {} of {} worker{} goes on from step {} after {:.2f} s", why.what(), net_.mesh().epoch(),
                    net_.size(), net_.size() == 1 ? "" : "s", session_.steps(), seconds);
    if (change.written_off > 0) text += fmt::format(", without what was owed there (norm {:.3g})", change.written_off);
    const Ledger::Change told{.step = session_.steps(),
                              .done = done,
                              .group = net_.mesh().epoch(),
                              .workers = net_.size(),
                              .lost = change.lost,
                              .joined = change.joined,
                              .written_off = change.written_off,
                              .seconds = seconds,
                              .why = why.what()};
    if (ledger_) ledger_->regrouped(told);
    watch_->regrouped(told);
    if (!speaks()) return;
    try {
      watch_->serve();  // the process that served it may be the lost one
    } catch (const ConfigError& e) {
      warn(e.what());
    }
    if (progress_) {
      progress_->say("slipstream: " + text);
    } else {
      std::fprintf(stderr, "slipstream: %s\n", text.c_str());
    }
    progress_.reset();  // the number of steps may have changed
  }

  int conclude() {
    const double ended = net_.clock().now();
    const ProcessUsage used = ProcessUsage::now();
    if (summary_.interrupted && !config_.checkpoint_every.empty()) {
      save_on_stop(session_, config_, [this](const std::string& text) { warn(text); });
    }
    if (progress_) progress_->finish();
    session_.finish();

    summary_.agreement = session_.agreement();
    const Evaluation evaluation = evaluate(net_, *task_);
    watch_->evaluated(session_.steps(), task_->metric(), task_->judged(evaluation), speaks());
    describe();
    summary_.first_step = first_;
    summary_.wall_seconds = ended - began_;
    summary_.samples_per_second =
        1e3 * static_cast<double>(task_->samples_per_step()) / summary_.steps.mean_ms(&StepRecord::seconds);
    summary_.threads = used.threads;
    summary_.switches_per_step = static_cast<double>(used.voluntary_switches - used_.voluntary_switches) /
                                 static_cast<double>(std::max<std::int64_t>(1, summary_.steps.steps()));
    summary_.final_loss = mean(by_rank(net_, last_loss_));
    summary_.compute_ms = by_rank(net_, summary_.steps.mean_ms(&StepRecord::compute_seconds));
    summary_.metric = task_->metric();
    summary_.metric_value = task_->judged(evaluation);
    summary_.out = config_.out;
    const auto events = trace_ ? gather_text(net_, trace_->events()) : std::vector<std::string>();
    std::optional<ConfigError> unwritten;
    if (speaks()) {
      if (!config_.out.empty()) {
        unwritten =
            write_results(session_, *task_, resolved(), registry_, summary_, trace_ ? Trace::document(events) : "");
      }
      std::printf("%s", (config_.json ? summary_.to_json() + "\n" : summary_.to_text()).c_str());
      std::fflush(stdout);
    }
    try {
      float done = 1;
      net_.sum(std::span(&done, 1)).wait();  // nobody leaves before all are done
    } catch (const GroupFailed&) {           // a rank was lost after everything was done
    }
    if (unwritten) throw *unwritten;
    return summary_.interrupted ? Interrupted("").exit_code() : 0;
  }

  MeshFabric& net_;
  const TrainConfig& config_;
  const Registry& registry_;
  const int seat_;  // the number it was started with; its rank may change
  std::unique_ptr<TorchTask> task_;
  const double base_lr_;
  const OptimizerOptions optimizer_;
  LrSchedule schedule_;
  Position at_{};  // position in the data of the current step
  std::int64_t first_ = 0, total_ = 0;
  bool resumed_ = false;    // from a checkpoint
  std::int64_t begun_ = 0;  // 1: the job has begun; the same on all ranks of a group
  bool ready_ = false;      // this worker is ready
  double began_ = 0, last_loss_ = std::nan("");
  ProcessUsage used_;  // when it began
  Summary summary_;
  std::optional<Ledger> ledger_;
  std::optional<Trace> trace_;
  std::optional<Progress> progress_;
  std::optional<Watch> watch_;
  Session session_;  // last: it calls into the members above
};

}  // namespace

int run_worker(const TrainConfig& config, const Registry& registry, const Rendezvous& at) {
  stop_on_signals(config.launch.supervised());
  TaskOptions task_options = config.task;
  task_options.seed = static_cast<std::uint64_t>(config.seed);
  std::unique_ptr<TorchTask> task;
  if (at.elastic())
    task = make_task(task_options, 0, at.max_workers);  // before joining, so that the others need not wait
  const auto net = join_fabric(stoppable(at));
  try {
    protect_earlier_run(config, at.rank, net->mesh().epoch());
    if (!task) task = make_task(task_options, net->rank(), net->size());
    if (!config.init.empty() && (net->rank() == 0 || at.elastic())) load_model(config.init, task->module());
    return Training(*net, config, registry, std::move(task)).run();
  } catch (const FabricError&) {  // all ranks know of it already
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

// Ctrl-C reaches all processes of a job at once: the workers stop at an agreed step and then say goodbye to the
// servers.
int run_server(const Rendezvous& at) {
  stop_on_signals(at.supervised);
  const auto net = join_fabric(stoppable(at));
  Goodbye why;
  do {
    try {
      why = ServerHost(*net).wait();
    } catch (const GroupFailed&) {
      why = Goodbye::kRegroups;
    }
    if (why == Goodbye::kRegroups) net->regroup();
  } while (why == Goodbye::kBackSoon || why == Goodbye::kRegroups);
  const bool stopped = why == Goodbye::kStopped;
  if (stopped && !at.supervised) std::fprintf(stderr, "slipstream: the workers were asked to stop\n");
  return stopped ? Interrupted("").exit_code() : 0;
}

}  // namespace slipstream
