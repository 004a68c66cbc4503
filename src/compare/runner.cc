// SPDX-License-Identifier: Apache-2.0
#include "compare/runner.h"

#include <fmt/format.h>
#include <slipstream/base/clock.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "checkpoint/atomic_file.h"
#include "compare/peer.h"
#include "compare/results.h"
#include "compare/texts.h"
#include "report/html.h"
#include "report/tables.h"

namespace slipstream {
namespace {

Durations durations_of(const GridPlan& plan, const CellFolder& folder) {
  Durations known;
  for (const Cell& cell : plan.cells) {
    if (const auto seconds = folder.finished_seconds(cell)) known.add(plan, cell, *seconds);
  }
  return known;
}

// One line on standard error: redrawn on a terminal; elsewhere printed only when a cell has ended.
class GridProgress {
 public:
  GridProgress() : terminal_(isatty(STDERR_FILENO) != 0) {}

  void show(const std::string& line) {
    if (!terminal_) return;
    winsize size{};
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    std::fprintf(stderr, "\r\033[K%s", line.substr(0, known ? size.ws_col - 1 : 79).c_str());
    std::fflush(stderr);
  }
  void say(const std::string& line) const {
    std::fprintf(stderr, terminal_ ? "\r\033[K%s\n" : "%s\n", line.c_str());
    std::fflush(stderr);
  }

 private:
  bool terminal_;
};

std::string told(const std::optional<CellOutcome>& outcome) {
  if (!outcome || !outcome->run) return "FAILED: " + (outcome ? outcome->failed : std::string("it left no cell.json"));
  const Run& run = *outcome->run;
  return fmt::format("{} ms a step, {}, took {}", fixed_text(run.step_ms_median, 1), result_text(run),
                     clock_text(outcome->seconds));
}

}  // namespace

void Durations::add(const GridPlan& plan, const Cell& cell, double seconds) {
  by_row_[cell.row].push_back(seconds);
  by_scenario_[plan.row_of(cell).scenario].push_back(seconds);
  all_.push_back(seconds);
}

double Durations::expect(const GridPlan& plan, const Cell& cell) const {
  if (const auto own = by_row_.find(cell.row); own != by_row_.end()) return median_of(own->second);
  const auto near = by_scenario_.find(plan.row_of(cell).scenario);
  if (near != by_scenario_.end()) return median_of(near->second);
  return all_.empty() ? kGuess : median_of(all_);
}

std::vector<std::size_t> cells_to_run(const GridPlan& plan, const CellFolder& folder,
                                      const std::vector<std::string>& again) {
  const auto is_named = [&again](const std::string& contender) {
    return std::any_of(again.begin(), again.end(), [&contender](const std::string& name) {
      return name == contender || name == strategy_name(contender);
    });
  };
  std::vector<std::size_t> found;
  std::set<std::string> keys;
  for (std::size_t i = 0; i < plan.cells.size(); ++i) {
    const Cell& cell = plan.cells[i];
    if (folder.finished_seconds(cell) && !is_named(plan.row_of(cell).contender)) continue;
    if (keys.insert(cell.key).second) found.push_back(i);
  }
  return found;
}

std::string plan_text(const GridPlan& plan, const CellFolder& folder, const std::vector<std::string>& again) {
  const auto waiting = cells_to_run(plan, folder, again);
  const Durations known = durations_of(plan, folder);
  double seconds = 0;
  for (const std::size_t at : waiting) seconds += known.expect(plan, plan.cells[at]);
  std::string text;
  for (std::size_t i = 0; i < plan.cells.size(); ++i) {
    const Cell& cell = plan.cells[i];
    const auto is_it = [&](std::size_t other) { return other != i && plan.cells[other].key == cell.key; };
    const bool runs = std::find(waiting.begin(), waiting.end(), i) != waiting.end();
    const bool shared = std::any_of(waiting.begin(), waiting.end(), is_it);
    text += fmt::format("{:>4}  {:<6} {:>7}  {}\n", i + 1,
                        runs     ? "to run"
                        : shared ? "shared"
                                 : "done",
                        clock_text(known.expect(plan, cell)), plan.cell_text(cell));
  }
  return text + fmt::format("{} cells, {} to run: about {}{}\n", plan.cells.size(), waiting.size(), clock_text(seconds),
                            known.guesses()
                                ? fmt::format(", guessed at {:.0f} s each: none has run yet", Durations::kGuess)
                                : "");
}

Ending run_plan(const GridPlan& plan, const CellFolder& folder, const RunRules& rules) {
  const SteadyClock clock;
  const double began = clock.now();
  const auto waiting = cells_to_run(plan, folder, rules.again);
  Durations known = durations_of(plan, folder);
  GridProgress progress;
  const bool has_peers = std::any_of(plan.rows.begin(), plan.rows.end(), [](const Row& row) { return row.peer; });
  if (has_peers) write_atomically(folder.out() / kPeerScript, peer_script());
  if (waiting.empty()) progress.say(fmt::format("all {} cells have run before", plan.cells.size()));
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (clock.now() - began > 60 * rules.minutes) {
      progress.say(fmt::format("{} minutes are over: {} cells are left", rules.minutes, waiting.size() - i));
      return Ending::kTimeOver;
    }
    const Cell& cell = plan.cells[waiting[i]];
    const auto later = [&] {  // expected time of the cells after this one
      double seconds = 0;
      for (std::size_t j = i + 1; j < waiting.size(); ++j) seconds += known.expect(plan, plan.cells[waiting[j]]);
      return seconds;
    };
    const double cell_began = clock.now();
    const bool ended = folder.run(rules.program, cell, rules.timeout_seconds, [&] {
      const double seconds = clock.now() - cell_began;
      const double left = later() + std::max(0.0, known.expect(plan, cell) - seconds);
      progress.show(fmt::format("{}/{} {} left  {} {}", i + 1, waiting.size(), clock_text(left), clock_text(seconds),
                                plan.cell_text(cell)));
    });
    if (!ended) {
      progress.say(
          fmt::format("stopped; {} of {} cells are kept, the same command goes on with the others", i, waiting.size()));
      return Ending::kInterrupted;
    }
    if (const auto seconds = folder.finished_seconds(cell)) known.add(plan, cell, *seconds);
    progress.say(fmt::format("{}/{} {}\n      {}; {} left", i + 1, waiting.size(), plan.cell_text(cell),
                             told(folder.outcome(plan, cell)), clock_text(later())));
  }
  return Ending::kComplete;
}

}  // namespace slipstream
