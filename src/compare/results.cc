// SPDX-License-Identifier: Apache-2.0
#include "compare/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace slipstream {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double mean_of(const std::vector<double>& values) {
  return values.empty() ? kNone
                        : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Spread spread_of(const std::vector<double>& values, double middle) {
  if (values.empty()) return {};
  return {middle, *std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end())};
}

double score_of(const Run& run) {
  if (run.metric.empty()) return run.final_loss;
  return run.metric == "test_accuracy" ? 100 * run.metric_value : run.metric_value;
}

// How much worse `mine` is: points of accuracy, or percent of the reference's loss.
double lost(double mine, double reference, bool by_loss) {
  return by_loss ? 100 * (mine / reference - 1) : reference - mine;
}

// Bytes that a dense sum moves each way.
double dense_bytes(const Run& run) {
  const auto workers = static_cast<double>(run.workers);
  return 2 * (workers - 1) / workers * 4 * static_cast<double>(run.parameters);
}

class Judge {
 public:
  Judge(const GridPlan& plan, const CellOutcomes& outcomes) : plan_(plan), outcomes_(outcomes) {}

  Results all() {
    for (const Row& row : plan_.rows) results_.rows.push_back(result_of(row));
    for (std::size_t s = 0; s < plan_.scenarios.size(); ++s) {
      auto& verdicts = results_.verdicts.emplace_back();
      for (const Claim& claim : plan_.grids[plan_.scenarios[s].grid].claims) verdicts.push_back(verdict(claim, s));
    }
    return std::move(results_);
  }

 private:
  const Run* run_of(std::size_t cell) const {
    const auto& outcome = outcomes_[cell];
    return outcome && outcome->run ? &*outcome->run : nullptr;
  }

  std::vector<const Run*> good_runs(const Row& row) const {
    std::vector<const Run*> runs;
    for (const std::size_t cell : row.cells) {
      if (const Run* run = run_of(cell)) runs.push_back(run);
    }
    return runs;
  }

  const Row* find(std::size_t scenario, const std::string& contender) const {
    for (const Row& row : plan_.rows) {
      if (row.scenario == scenario && row.contender == contender) return &row;
    }
    return nullptr;
  }

  // f of the two runs of each seed and repeat in which both succeeded.
  template <typename F>
  std::vector<double> pairwise(const Row& mine, const Row& other, const F& f) const {
    std::vector<double> values;
    for (std::size_t i = 0; i < mine.cells.size(); ++i) {
      const Run *a = run_of(mine.cells[i]), *b = run_of(other.cells[i]);
      if (a != nullptr && b != nullptr) values.push_back(f(*a, *b));
    }
    return values;
  }

  Spread speed_over(const Row& row, const std::string& base) const {
    const Row* other = find(row.scenario, base);
    if (other == nullptr || !plan_.grid_of(row).reference_link.empty()) return {};  // on another network
    const auto ratios =
        pairwise(row, *other, [](const Run& a, const Run& b) { return a.samples_per_second / b.samples_per_second; });
    return spread_of(ratios, median_of(ratios));
  }

  RowResult result_of(const Row& row) const {
    const GridSpec& grid = plan_.grid_of(row);
    RowResult made;
    for (const std::size_t cell : row.cells) {
      const auto& outcome = outcomes_[cell];
      ++(!outcome ? made.missing : outcome->run ? made.good : made.failed);
    }
    const auto runs = good_runs(row);
    const auto values = [&runs](const auto& of) {
      std::vector<double> all;
      for (const Run* run : runs) all.push_back(of(*run));
      return all;
    };
    const auto steps = values([](const Run& r) { return r.step_ms_median; });
    made.step_ms = spread_of(steps, median_of(steps));
    made.samples_per_second = median_of(values([](const Run& r) { return r.samples_per_second; }));
    made.efficiency = median_of(values([](const Run& r) { return r.efficiency; }));
    made.hidden = median_of(values([](const Run& r) { return r.hidden_fraction; }));
    for (const auto phase : {&Phases::compute_ms, &Phases::update_ms, &Phases::encode_ms, &Phases::waiting_ms}) {
      made.phases.*phase = runs.empty() ? 0 : mean_of(values([phase](const Run& r) { return r.mean.*phase; }));
    }
    made.bytes_sent = mean_of(values([](const Run& r) { return r.bytes_sent_per_step; }));
    made.bytes_of_dense = mean_of(
        values([](const Run& r) { return (r.bytes_sent_per_step + r.bytes_received_per_step) / 2 / dense_bytes(r); }));
    made.over_dense = speed_over(row, "ssgd");
    made.over_16_bit = speed_over(row, "ssgd:wire=fp16");

    const auto scores = values(score_of);
    made.score = spread_of(scores, mean_of(scores));
    made.tested = !runs.empty() && !runs.front()->metric.empty();
    made.by_loss = !runs.empty() && runs.front()->metric != "test_accuracy";
    const Row& reference = *find(row.scenario, grid.reference());
    const auto losses = pairwise(
        row, reference, [&made](const Run& a, const Run& b) { return lost(score_of(a), score_of(b), made.by_loss); });
    made.difference = (made.by_loss ? 1 : -1) * mean_of(losses) + 0.0;
    made.limit = grid.limit_of(row.contender);
    if (made.limit && losses.size() == row.cells.size()) made.holds = mean_of(losses) <= *made.limit;

    std::vector<double> seconds;
    for (const Run* run : runs) {
      if (const auto reached = grid.target ? seconds_to_target(*run, *grid.target) : std::nullopt) {
        seconds.push_back(*reached);
      }
    }
    made.reached = static_cast<int>(seconds.size());
    made.seconds_to_target = median_of(seconds);
    return made;
  }

  Verdict verdict(const Claim& claim, std::size_t scenario) const {
    std::vector<const RowResult*> of;
    bool missing = false;
    for (const std::string& name : claim.of) {
      of.push_back(&results_.rows[static_cast<std::size_t>(find(scenario, name) - plan_.rows.data())]);
      missing = missing || of.back()->failed + of.back()->missing > 0;
    }
    const auto told = [&](const std::string& said, const auto& measured, const auto& holds) {
      return missing ? Verdict{said, std::nullopt} : Verdict{fmt::format("{} ({})", said, measured()), holds()};
    };
    const RowResult& a = *of.front();
    if (claim.kind == "no worse") {
      const RowResult& b = *of[1];
      return told(
          fmt::format("{} is no worse than {} at up to {:g} × its bytes", claim.of[0], claim.of[1], claim.value),
          [&] {
            return fmt::format("{:.4g} against {:.4g}, {:.2f} × the bytes", a.score.middle, b.score.middle,
                               a.bytes_of_dense / b.bytes_of_dense);
          },
          [&] {
            const bool ahead = a.by_loss ? a.score.middle <= b.score.middle : a.score.middle >= b.score.middle;
            return ahead && a.bytes_of_dense <= claim.value * b.bytes_of_dense;
          });
    }
    const auto share = [&] { return fmt::format("{:.3f}", a.bytes_of_dense); };
    if (claim.kind == "bytes") {
      return told(fmt::format("{} moves at most {:.3f} of a dense sum's bytes", claim.of[0], claim.value), share,
                  [&] { return a.bytes_of_dense <= claim.value; });
    }
    if (claim.kind == "formula") {
      return told(fmt::format("{} moves {:g} of a dense sum's bytes", claim.of[0], claim.value), share,
                  [&] { return std::abs(a.bytes_of_dense / claim.value - 1) < 0.02; });
    }
    std::vector<double> scores;
    for (const RowResult* row : of) scores.push_back(row->score.middle);
    return told(
        fmt::format("none is worse than the one before it by more than {:g}: {}", claim.value,
                    fmt::join(claim.of, ", ")),
        [&] { return fmt::format("{:.4g}", fmt::join(scores, ", ")); },
        [&] {
          bool all = true;
          for (std::size_t i = 1; i < scores.size(); ++i) {
            const double worse = a.by_loss ? scores[i] - scores[i - 1] : scores[i - 1] - scores[i];
            all = all && worse <= claim.value;
          }
          return all;
        });
  }

  const GridPlan& plan_;
  const CellOutcomes& outcomes_;
  Results results_;
};

}  // namespace

double median_of(std::vector<double> values) {
  if (values.empty()) return kNone;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::optional<double> seconds_to_target(const Run& run, double target) {
  for (const EvaluationPoint& point : run.evaluations) {
    if (run.metric == "test_loss" ? point.value <= target : point.value >= target) return point.seconds;
  }
  return std::nullopt;
}

Results judge(const GridPlan& plan, const CellOutcomes& outcomes) { return Judge(plan, outcomes).all(); }

int Results::misses(const GridPlan& plan) const {
  int count = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const RowResult& row = rows[r];
    if (row.limit && row.holds != true) ++count;
    if (!plan.rows[r].peer) count += row.failed + row.missing;
  }
  for (const auto& verdict_list : verdicts) {
    for (const Verdict& verdict : verdict_list) count += verdict.holds != true;
  }
  return count;
}

}  // namespace slipstream
