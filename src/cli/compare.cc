// SPDX-License-Identifier: Apache-2.0
#include <slipstream/base/error.h>

#include <algorithm>
#include <cstdio>

#include "checkpoint/atomic_file.h"
#include "cli/verbs.h"
#include "compare/runner.h"
#include "compare/writers.h"
#include "lab/lab.h"
#include "runtime/config.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;

constexpr int kMissed = 1, kTimeOver = 3;

constexpr const char* kAbout =
    "Which strategy helps, by how much, and what does it cost in accuracy? Runs a\n"
    "grid of strategies × links × worker counts × seeds, one cell after another,\n"
    "and writes results.json, results.md and report.html. Finished cells are kept:\n"
    "the same command goes on where it was stopped.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  slipstream compare --quick\n"
    "      a small grid with a report, in some minutes\n"
    "  slipstream compare --strategies ssgd lags gs:density=0.01 --models cnn\n"
    "      --links none 100mbit 100mbit,25ms --seeds 1 2 3 --peers ddp fp16\n"
    "      -- --steps 200 --eval-every 50\n"
    "      what follows -- goes to `slipstream train` (and to the peers)\n"
    "  slipstream compare --spec bench/lab/cnn.toml --grids cnn-1 --dry-run\n"
    "      grids from a file; --dry-run shows the plan and its duration\n"
    "\n"
    "A speed stands beside the result it was bought with. Exit code: 1 where a limit\n"
    "or claim of the spec does not hold or a strategy's cell failed (a peer's failure\n"
    "is a result), 3 where --minutes were over, 130 after Ctrl-C.\n";

struct Arguments {
  std::string spec, out = "runs/compare", python = "/usr/bin/python3", target;
  std::vector<std::string> grids, strategies, peers, models, links, again, train;
  std::vector<std::int64_t> workers, seeds;
  std::int64_t repeats = 0;
  double timeout = 900, minutes = std::numeric_limits<double>::infinity();
  bool quick = false, dry_run = false, report = false;
};

// A few strategies, one for each kind, on a small model: some minutes on two cores.
GridSpec quick_grid() {
  GridSpec grid;
  grid.name = "quick";
  grid.about =
      "A small multilayer perceptron on Fashion-MNIST for a few steps: shows what the network costs, and little "
      "about accuracy.";
  grid.strategies = {"ssgd", "ssgd:wire=fp16", "lags", "gs", "dasgd:period=8"};
  grid.models = {"mlp"};
  if (NetNamespace::permitted()) grid.links = {"none", "100mbit"};
  grid.seeds = {1, 2};
  grid.target = 0.75;
  grid.train = {"--steps", "40", "--eval-every", "8"};
  return grid;
}

template <typename T>
void replace(std::vector<T>& values, const std::vector<T>& given) {
  if (!given.empty()) values = given;
}

std::vector<GridSpec> chosen_grids(const Arguments& a) {
  if (a.quick && !a.spec.empty()) fail<ConfigError>("--quick and --spec are two grids; leave one of them out");
  const bool has_own = a.quick || !a.spec.empty();
  std::vector<GridSpec> grids = !a.spec.empty() ? read_spec(a.spec) : std::vector{a.quick ? quick_grid() : GridSpec{}};
  if (!has_own && a.strategies.empty() && a.peers.empty()) {
    fail<ConfigError>("nothing to compare: give --strategies, --spec FILE or --quick");
  }
  for (const std::string& name : a.grids) {
    const auto is_it = [&name](const GridSpec& grid) { return grid.name == name; };
    if (std::any_of(grids.begin(), grids.end(), is_it)) continue;
    std::vector<std::string> known;
    for (const GridSpec& grid : grids) known.push_back(grid.name);
    const std::string near = nearest(name, known);
    fail<ConfigError>("there is no grid {} here{}", name, near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
  }
  if (!a.grids.empty()) {
    std::erase_if(grids, [&a](const GridSpec& grid) {
      return std::find(a.grids.begin(), a.grids.end(), grid.name) == a.grids.end();
    });
  }
  for (GridSpec& grid : grids) {
    if (!has_own) {
      grid.strategies = a.strategies;
    } else if (!a.strategies.empty()) {
      keep_strategies(grid, a.strategies);
    }
    replace(grid.peers, a.peers);
    replace(grid.models, a.models);
    replace(grid.links, a.links);
    replace(grid.workers, a.workers);
    replace(grid.seeds, a.seeds);
    if (a.repeats > 0) grid.repeats = a.repeats;
    if (!a.target.empty()) grid.target = parse_target(a.target);
    grid.train.insert(grid.train.end(), a.train.begin(), a.train.end());
  }
  return grids;
}

// Finds options that do not exist before hours of running.
void check_strategies(const GridPlan& plan, const Registry& registry) {
  for (const Row& row : plan.rows) {
    if (row.peer) continue;
    TrainConfig config;
    config.strategy = row.contender;
    config.take_set_from_strategy();
    (void)registry.configure(config.strategy, config.set).make();
  }
}

std::vector<std::string> program_words(const std::vector<std::string>& arguments) {
  return {arguments.begin(), std::find(arguments.begin(), arguments.end(), "compare")};
}

Results write_results(const GridPlan& plan, const CellFolder& folder) {
  CellOutcomes outcomes;
  for (const Cell& cell : plan.cells) outcomes.push_back(folder.outcome(plan, cell));
  Results results = judge(plan, outcomes);
  write_atomically(folder.out() / "results.json", results_json(plan, results, outcomes));
  write_atomically(folder.out() / "results.md", results_markdown(plan, results, outcomes));
  write_report(shown_runs(plan, outcomes), folder.out() / "report.html", grid_part(plan, results, outcomes));
  return results;
}

// What follows `--`, for `slipstream train`.
std::vector<std::string> words_after_mark(const std::vector<std::string>& arguments) {
  const auto mark = std::find(arguments.begin(), arguments.end(), "--");
  return mark == arguments.end() ? std::vector<std::string>() : std::vector<std::string>(mark + 1, arguments.end());
}

int compare(Arguments a, const Invocation& invocation) {
  a.train = words_after_mark(invocation.arguments);
  const GridPlan plan = make_plan(chosen_grids(a), a.python);
  check_strategies(plan, invocation.registry);
  const CellFolder folder(a.out);
  if (a.dry_run) {
    std::fputs(plan_text(plan, folder, a.again).c_str(), stdout);
    return 0;
  }
  std::error_code error;
  fs::create_directories(folder.out(), error);
  if (error) fail<ConfigError>("cannot make --out {}: {}", a.out, error.message());
  const auto needs_lab = [](const Scenario& scenario) { return scenario.link != kLoopback; };
  const bool labs = std::any_of(plan.scenarios.begin(), plan.scenarios.end(), needs_lab);
  if (labs && !a.report) Lab::require_root();
  Ending ending = Ending::kComplete;
  if (!a.report) {
    ending = run_plan(plan, folder, {program_words(invocation.arguments), a.again, a.timeout, a.minutes});
  }
  const Results results = write_results(plan, folder);
  const int misses = results.misses(plan);
  std::printf(
      "%s\n",
      fmt::format("results are in {0}/results.md, {0}/results.json and {0}/report.html{1}", a.out,
                  misses == 0 ? "" : fmt::format("\n{} limits, claims or cells are not as they should be", misses))
          .c_str());
  if (ending == Ending::kInterrupted) return Interrupted("").exit_code();
  return ending == Ending::kTimeOver ? kTimeOver : misses > 0 ? kMissed : 0;
}

}  // namespace

Verb add_compare(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  CLI::App& verb = *app.add_subcommand("compare", "which strategies help, by how much, and at what accuracy");
  verb.footer(std::string(kAbout) + "\n" + kExamples);
  const char *grid = "The grid", *run = "Running it";
  verb.add_flag("--quick", a->quick, "a small grid that takes some minutes")->group(grid);
  verb.add_option("--spec", a->spec, "TOML file with grids; the flags below replace what it says")
      ->type_name("FILE")
      ->group(grid);
  verb.add_option("--grids", a->grids, "of the spec: only these")->type_name("NAME")->group(grid);
  verb.add_option(
          "--strategies", a->strategies,
          "NAME or NAME:KEY=VALUE,…; the first is the reference. With --spec: only these of its own, and its reference")
      ->type_name("STRATEGY")
      ->group(grid);
  verb.add_option("--peers", a->peers,
                  "ddp, fp16, powersgd1, powersgd4, hook-STRATEGY, python-STRATEGY (NAME@MB sets DDP's buckets), "
                  "torchft-local, torchft-diloco, hivemind (NAME@STEPS sets the period)")
      ->type_name("PEER")
      ->group(grid);
  verb.add_option("--models", a->models, "as `train --model` takes them")->type_name("MODEL")->group(grid);
  verb.add_option("--links", a->links, "loopback (no lab), or as `train --lab` takes them: none 100mbit 1gbit,5ms")
      ->type_name("LINK")
      ->default_str("loopback")
      ->group(grid);
  verb.add_option("--workers", a->workers, "numbers of workers")->type_name("N")->default_str("2")->group(grid);
  verb.add_option("--seeds", a->seeds, "of weights and sample order")->type_name("N")->default_str("1")->group(grid);
  verb.add_option("--repeats", a->repeats, "of every seed, for times")
      ->check(CLI::PositiveNumber)
      ->type_name("N")
      ->default_str("1")
      ->group(grid);
  verb.add_option("--target", a->target,
                  "85% or a loss: how long until an evaluation is as good? (needs -- --eval-every N)")
      ->type_name("VALUE")
      ->group(grid);
  verb.add_option("--out", a->out, "the folder of cells and results")
      ->type_name("DIR")
      ->capture_default_str()
      ->group(run);
  verb.add_flag("--dry-run", a->dry_run, "print the plan and how long it takes; run nothing")->group(run);
  verb.add_flag("--report", a->report, "run nothing; write the results of what has run")->group(run);
  verb.add_option("--again", a->again, "strategies or peers whose cells run once more")->type_name("NAME")->group(run);
  verb.add_option("--minutes", a->minutes, "begin no cell after so many")
      ->check(CLI::PositiveNumber)
      ->type_name("N")
      ->group(run);
  verb.add_option("--timeout", a->timeout, "seconds after which a cell has failed")
      ->check(CLI::PositiveNumber)
      ->type_name("SECONDS")
      ->capture_default_str()
      ->group(run);
  verb.add_option("--python", a->python, "the interpreter of the peers, with torch")
      ->type_name("PATH")
      ->capture_default_str()
      ->group(run);
  return [a](const Invocation& invocation) { return compare(*a, invocation); };
}

}  // namespace slipstream
