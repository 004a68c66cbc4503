// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <slipstream/base/error.h>
#include <unistd.h>

#include <cstdio>

#include "cli/verbs.h"
#include "lab/lab.h"
#include "plan/plan_page.h"
#include "runtime/measure_profile.h"
#include "runtime/train.h"
#include "task/task_options.h"

namespace slipstream {
namespace {

constexpr double kPayload = 0.95;  // of a line's rate: the rest are the headers of frames, IP and TCP

constexpr const char* kExamples =
    "Predicts what strategies would do, by running their own code in simulated time\n"
    "on a stand-in for the model. Without --compute-ms it trains the model for some\n"
    "seconds on the workers it is given, and measures what it needs to know.\n"
    "\n"
    "  slipstream plan --model cnn --workers 2\n"
    "      measured: the model, these processes and the link between them\n"
    "  slipstream plan --model cnn --link 100mbit,25ms --for 2 8 64\n"
    "      the same model on another link, with more workers\n"
    "  slipstream plan --link 1gbit,10ms --workers 64 --parameters 7e9 \\\n"
    "      --compute-ms 900\n"
    "      nothing but these numbers; encoding takes what it takes on this machine\n";

struct Arguments {
  Given given;  // flags of `train`
  int supervisor_fd = -1;
  PlanRequest request;
  std::vector<std::string> links;  // "none": the measured one
  double parameters = 0, compute_ms = 0, forward_share = 1.0 / 3;
  std::int64_t tensors = 64;
  std::vector<int> workers;  // numbers of workers to plan for
  bool no_costs = false, no_dials = false, json = false;
  std::string report;  // a file; empty: none
};

// What the flags of `train` say.
struct Training {
  TaskOptions task;
  OptimizerOptions optimizer;
  LaunchOptions launch;

  void describe(OptionSet& o) {
    task.describe(o);
    optimizer.describe(o);
    launch.describe(o);
  }
};

LinkModel link_of(const std::string& text) {
  const LabSpec spec = LabSpec::parse(text);
  if (spec.rate == "none") fail<ConfigError>("--link needs a rate: 100mbit, or with a latency 1gbit,20ms");
  if (spec.loss_percent > 0) fail<ConfigError>("--link {}: simulated links lose nothing; leave out the loss", text);
  LinkModel link;
  link.latency_s += spec.delay_ms / 1000;  // on top of what the machines take themselves
  link.bytes_per_s = kPayload * spec.bits_per_second() / 8;
  return link;
}

PlanProfile given_profile(const Arguments& a, const OptimizerOptions& optimizer) {
  if (!(a.parameters >= 1 && a.parameters <= 1e13)) fail<ConfigError>("--parameters goes from 1 to 1e13");
  if (!(a.compute_ms > 0 && a.compute_ms <= 1e8)) fail<ConfigError>("--compute-ms goes from above 0 to 1e8");
  if (!(a.forward_share >= 0 && a.forward_share < 1)) fail<ConfigError>("--forward-share goes from 0 to below 1");
  if (a.tensors < 1 || a.tensors > 10'000) fail<ConfigError>("--tensors goes from 1 to 10000");
  if (a.links.empty()) fail<ConfigError>("--compute-ms needs --link as well, for example --link 1gbit,10ms");
  for (const std::string& link : a.links) link_of(link);
  PlanProfile profile;
  profile.parameters = equal_tensors(a.parameters, a.tensors);
  profile.compute_s = a.compute_ms / 1000;
  profile.forward_share = a.forward_share;
  profile.optimizer = optimizer;
  return profile;
}

// The link to plan for. With a measured profile, the limits of these machines' own network stack remain.
LinkModel planned_link(const Arguments& a, const LinkModel& measured, const std::string& text) {
  if (text == "none") return measured;
  LinkModel link = link_of(text);
  if (a.compute_ms != 0) return link;
  link.latency_s = measured.latency_s + LabSpec::parse(text).delay_ms / 1000;
  link.bytes_per_s = std::min(measured.bytes_per_s, link.bytes_per_s);
  return link;
}

std::string measured_text(const MeasuredProfile& m) {
  return fmt::format("measured here: a step of ssgd took {:.4g} ms; moving a byte took {:.2g} ns from computing\n\n",
                     1e3 * m.dense_step_s, 1e9 * m.profile.io_s_per_byte);
}

int print_plans(const Arguments& a, PlanProfile profile, const Registry& registry) {
  profile.costs = !a.no_costs;
  PlanRequest request = a.request;
  request.dials = !a.no_dials;
  if (isatty(STDERR_FILENO) == 1) {
    request.on_begin = [](const std::string& what) { std::fprintf(stderr, "\r\033[Ksimulating %s …", what.c_str()); };
  }
  std::vector<Plan> plans;
  const LinkModel measured = profile.link;
  for (const std::string& link : a.links.empty() ? std::vector<std::string>{"none"} : a.links) {
    profile.link = planned_link(a, measured, link);
    for (const int workers : a.workers) {
      if (workers < 1 || workers > 1024) fail<ConfigError>("{} workers: plans go from 1 to 1024", workers);
      profile.workers = workers;
      plans.push_back(make_plan(profile, request, registry));
      plans.back().link = link;
      if (request.on_begin) std::fprintf(stderr, "\r\033[K");
      if (!a.json) std::printf("%s%s", plans.size() > 1 ? "\n" : "", plan_text(plans.back()).c_str());
      std::fflush(stdout);
    }
  }
  if (a.json) std::printf("%s\n", plan_json(plans).c_str());
  if (!a.report.empty()) {
    write_report({}, a.report, plan_part(plans));
    std::fprintf(stderr, "%s has the same with plots\n", a.report.c_str());
  }
  return 0;
}

}  // namespace

Verb add_plan(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  CLI::App& verb = *app.add_subcommand("plan", "predict what every strategy would do");
  verb.footer(kExamples);
  verb.add_option("--strategies", a->request.strategies,
                  "names from `slipstream list`, each with or without :KEY=VALUE,…")
      ->default_str("all");
  verb.add_option("--link", a->links,
                  "rate of every port, and latency: 100mbit, 1gbit,20ms; a table for each; none: the measured one");
  verb.add_option("--parameters", a->parameters, "of the model");
  verb.add_option("--compute-ms", a->compute_ms, "of one step of one worker, its update included");
  verb.add_option("--forward-share", a->forward_share, "of it, before the first gradient")->default_str("0.333");
  verb.add_option("--tensors", a->tensors, "weight matrices of the model, of equal size")->default_str("64");
  verb.add_option("--for", a->workers, "a table for each of these numbers of workers, up to 1024")
      ->default_str("--workers");
  verb.add_flag("--no-costs", a->no_costs, "encoding takes no time: a processor that is far faster than this one");
  verb.add_flag("--no-dials", a->no_dials, "strategies as they are by default; no other options are tried");
  verb.add_flag("--json", a->json, "one JSON document instead of tables");
  verb.add_option("--report", a->report, "a file: the same as a page with plots, which opens offline");
  verb.add_option("--supervisor-fd", a->supervisor_fd)->group("");
  Training described;
  OptionSet options("command line");
  described.describe(options);
  for (const Option& option : options.all()) add_flag(verb, option, "To measure, as `train` takes them", a->given);
  return [a](const Invocation& invocation) {
    Training training;
    OptionSet set("command line");
    training.describe(set);
    apply_flags(a->given, set);
    training.launch.supervisor_fd = a->supervisor_fd;
    const auto workers = static_cast<int>(training.launch.workers);
    if (a->compute_ms != 0) {
      if (a->workers.empty()) a->workers = {workers > 0 ? workers : 2};
      return print_plans(*a, given_profile(*a, training.optimizer), invocation.registry);
    }
    if (a->parameters != 0) fail<ConfigError>("--parameters describes a model whose --compute-ms are given, too");
    for (const std::string& link : a->links) planned_link(*a, {}, link);  // check them before anything is started
    training.task = training.task.resolved();
    return launch(training.launch, invocation, [&](const Rendezvous& at) {
      if (at.serves()) return run_server(at);
      MeasuredProfile measured = measure_profile(training.task, training.optimizer, at);
      if (at.rank != 0) return 0;
      if (a->workers.empty()) a->workers = {measured.profile.workers};
      if (!a->json) std::printf("%s", measured_text(measured).c_str());
      return print_plans(*a, std::move(measured.profile), invocation.registry);
    });
  };
}

}  // namespace slipstream
