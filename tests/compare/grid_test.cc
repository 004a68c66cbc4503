// SPDX-License-Identifier: Apache-2.0
#include "compare/grid.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <set>

namespace slipstream {
namespace {

GridSpec small_grid() {
  GridSpec grid;
  grid.strategies = {"ssgd", "lags:density=0.1"};
  grid.seeds = {1, 2};
  grid.train = {"--steps", "5"};
  return grid;
}

std::string text_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

TEST(Grid, AllContendersOfASeedAndRepeatComeBeforeTheNext) {
  GridSpec grid = small_grid();
  grid.repeats = 2;
  const GridPlan plan = make_plan({grid}, "python3");
  std::vector<std::string> order;
  for (const Cell& cell : plan.cells) order.push_back(plan.cell_text(cell));
  EXPECT_EQ(order, (std::vector<std::string>{
                       "loopback, 2 workers: ssgd, seed 1, repeat 1",
                       "loopback, 2 workers: lags:density=0.1, seed 1, repeat 1",
                       "loopback, 2 workers: ssgd, seed 1, repeat 2",
                       "loopback, 2 workers: lags:density=0.1, seed 1, repeat 2",
                       "loopback, 2 workers: ssgd, seed 2, repeat 1",
                       "loopback, 2 workers: lags:density=0.1, seed 2, repeat 1",
                       "loopback, 2 workers: ssgd, seed 2, repeat 2",
                       "loopback, 2 workers: lags:density=0.1, seed 2, repeat 2",
                   }));
}

TEST(Grid, HasEveryCombinationOnce) {
  GridSpec grid = small_grid();
  grid.models = {"mlp", "cnn"};
  grid.links = {"none", "100mbit", "100mbit,25ms"};
  grid.workers = {2, 4};
  grid.peers = {"ddp"};
  const GridPlan plan = make_plan({grid}, "python3");
  EXPECT_EQ(plan.scenarios.size(), 2U * 3 * 2);
  EXPECT_EQ(plan.rows.size(), plan.scenarios.size() * 3);
  EXPECT_EQ(plan.cells.size(), plan.rows.size() * 2);
  std::set<std::string> keys;
  for (const Cell& cell : plan.cells) keys.insert(cell.key);
  EXPECT_EQ(keys.size(), plan.cells.size());
  for (const Row& row : plan.rows) EXPECT_EQ(row.cells.size(), 2U);
}

TEST(Grid, ACellIsACommandOfThisProgram) {
  GridSpec grid = small_grid();
  grid.models = {"mlp"};
  grid.links = {"100mbit"};
  grid.peers = {"powersgd1@1000"};
  const GridPlan plan = make_plan({grid}, "/opt/python");
  EXPECT_EQ(text_of(plan.cells[1].arguments),
            "train --strategy lags:density=0.1 --workers 2 --lab 100mbit --model mlp --steps 5 --seed 1 --json");
  EXPECT_EQ(text_of(plan.cells[2].arguments),
            "lab --hosts 2 --rate 100mbit -- /opt/python peer.py --hook powersgd1 --bucket-mb 1000 --model mlp "
            "--steps 5 --seed 1");
  EXPECT_EQ(text_of(make_plan({small_grid()}, "p").cells[0].arguments),
            "train --strategy ssgd --workers 2 --steps 5 --seed 1 --json")
      << "no lab on the loopback, the task's own model";
}

TEST(Grid, AKeyFollowsFromTheCommandAndNamesAFolder) {
  const GridPlan plan = make_plan({small_grid()}, "p"), same = make_plan({small_grid()}, "p");
  GridSpec other = small_grid();
  other.train = {"--steps", "6"};
  const GridPlan longer = make_plan({other}, "p");
  for (std::size_t i = 0; i < plan.cells.size(); ++i) {
    EXPECT_EQ(plan.cells[i].key, same.cells[i].key);
    EXPECT_NE(plan.cells[i].key, longer.cells[i].key);
  }
  GridSpec hostile = small_grid();
  hostile.strategies = {"ssgd", "../../<script>" + std::string(500, 'x')};
  const std::string key = make_plan({hostile}, "p").cells[1].key;
  EXPECT_EQ(key.find_first_of("/<>"), std::string::npos) << key;
  EXPECT_LT(key.size(), 100U);
}

TEST(Grid, AReferenceOfAnotherNetworkIsTheSameCell) {
  GridSpec here = small_grid(), there = small_grid();
  there.links = {"100mbit"};
  there.reference_link = "loopback";
  const GridPlan plan = make_plan({here, there}, "p");
  EXPECT_EQ(plan.cells[0].key, plan.cells[4].key) << "ssgd, seed 1";
  EXPECT_NE(plan.cells[1].key, plan.cells[5].key) << "lags, seed 1";
}

}  // namespace
}  // namespace slipstream
