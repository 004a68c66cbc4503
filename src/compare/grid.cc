// SPDX-License-Identifier: Apache-2.0
#include "compare/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/hash.h"
#include "compare/peer.h"

namespace slipstream {
namespace {

using Words = std::vector<std::string>;

const std::string& link_of(const GridSpec& grid, const Scenario& scenario, const std::string& contender) {
  const bool elsewhere = contender == grid.reference() && !grid.reference_link.empty();
  return elsewhere ? grid.reference_link : scenario.link;
}

Words arguments_of(const std::string& link, const GridSpec& grid, const Scenario& scenario, const Row& row,
                   std::int64_t seed, const std::string& python) {
  const std::string workers = std::to_string(scenario.workers);
  Words words;
  if (row.peer) {
    words = {"lab", "--hosts", workers, "--rate", link, "--", python, std::string(kPeerScript)};
    const Words flags = peer_flags(row.contender);
    words.insert(words.end(), flags.begin(), flags.end());
  } else {
    words = {"train", "--strategy", row.contender, "--workers", workers};
    if (link != kLoopback) words.insert(words.end(), {"--lab", link});
  }
  if (!scenario.model.empty()) words.insert(words.end(), {"--model", scenario.model});
  words.insert(words.end(), grid.train.begin(), grid.train.end());
  words.insert(words.end(), {"--seed", std::to_string(seed)});
  if (!row.peer) words.push_back("--json");
  return words;
}

// A folder's name: readable, and different for different commands.
std::string key_of(const std::string& link, const Scenario& scenario, const std::string& contender, const Cell& cell) {
  std::string name = fmt::format("{}-{}-p{}-{}-s{}", scenario.model.empty() ? "model" : scenario.model, link,
                                 scenario.workers, contender, cell.seed);
  for (char& c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '=' || c == '-' || c == '.';
    if (!plain) c = '_';
  }
  std::string identity = std::to_string(cell.repeat);
  for (const std::string& word : cell.arguments) identity += '\0' + word;
  const std::uint64_t hash = hash_bytes(std::as_bytes(std::span(identity)));
  return fmt::format("{}-{:08x}", name.substr(0, 80), hash & 0xffffffff);
}

}  // namespace

std::string GridPlan::scenario_text(const Scenario& scenario) const {
  return fmt::format("{}{}{}, {} worker{}", scenario.model, scenario.model.empty() ? "" : ", ", scenario.link,
                     scenario.workers, scenario.workers == 1 ? "" : "s");
}

std::string GridPlan::cell_text(const Cell& cell) const {
  const Row& row = row_of(cell);
  const std::string repeat = grid_of(row).repeats > 1 ? fmt::format(", repeat {}", cell.repeat + 1) : "";
  return fmt::format("{}: {}, seed {}{}", scenario_text(scenario_of(row)), row.contender, cell.seed, repeat);
}

GridPlan make_plan(std::vector<GridSpec> grids, const std::string& python) {
  GridPlan plan;
  for (const GridSpec& grid : grids) grid.validate();
  plan.grids = std::move(grids);
  for (std::size_t g = 0; g < plan.grids.size(); ++g) {
    const GridSpec& grid = plan.grids[g];
    const Words models = grid.models.empty() ? Words{""} : grid.models;
    for (const std::string& model : models) {
      for (const std::string& link : grid.links) {
        for (const std::int64_t workers : grid.workers) plan.scenarios.push_back({g, model, link, workers});
      }
    }
  }
  for (std::size_t s = 0; s < plan.scenarios.size(); ++s) {
    const GridSpec& grid = plan.grids[plan.scenarios[s].grid];
    const std::size_t first_row = plan.rows.size();
    for (const std::string& name : grid.strategies) plan.rows.push_back({s, name, false, {}});
    for (const std::string& name : grid.peers) plan.rows.push_back({s, name, true, {}});
    for (const std::int64_t seed : grid.seeds) {
      for (std::int64_t repeat = 0; repeat < grid.repeats; ++repeat) {
        for (std::size_t r = first_row; r < plan.rows.size(); ++r) {
          Row& row = plan.rows[r];
          const std::string& link = link_of(grid, plan.scenarios[s], row.contender);
          Cell cell{r, seed, repeat, arguments_of(link, grid, plan.scenarios[s], row, seed, python), ""};
          cell.key = key_of(link, plan.scenarios[s], row.contender, cell);
          row.cells.push_back(plan.cells.size());
          plan.cells.push_back(std::move(cell));
        }
      }
    }
  }
  return plan;
}

}  // namespace slipstream
