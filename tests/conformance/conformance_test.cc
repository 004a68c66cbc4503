// SPDX-License-Identifier: Apache-2.0
//
// What every strategy owes, whatever its algorithm: tried on all entries of the registry at several numbers of workers,
// with their options varied at some of them. A strategy joins by being registered.
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <slipstream/strategy/registry.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "engine/engine.h"
#include "kit/sim.h"
#include "kit/variants.h"
#include "strategy/card.h"
#include "task/files.h"

namespace slipstream::test {
namespace {

struct Case {
  Variant variant;
  int ranks = 1;
  int servers = 0;  // that only serve; 0: beside the workers, or none

  std::string name() const {
    return fmt::format("{}_P{}{}", variant.name(), ranks, servers > 0 ? fmt::format("_S{}", servers) : "");
  }
};

constexpr const char* kMemory = "/dev/shm";  // hundreds of small checkpoints need no disk

void PrintTo(const Case& c, std::ostream* out) { *out << c.name(); }

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Variant& variant : variants()) {
    const bool as_it_is = variant.set.empty() || variant.set == std::vector<std::string>{kShortWarmup};
    for (int ranks : as_it_is ? std::vector{1, 2, 3, 4, 7} : std::vector{2, 3, 7}) all.push_back({variant, ranks});
    if (!as_it_is || !variant.configure().make()->needs_servers()) continue;
    for (int servers : {1, 2, 3}) {
      for (int ranks : {1, 2, 3, 4}) all.push_back({variant, ranks, servers});
    }
  }
  return all;
}

std::string test_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

class Conformance : public testing::TestWithParam<Case> {
 protected:
  SimJobOptions job(std::int64_t steps = 13) const { return job(GetParam().variant, steps); }
  SimJobOptions job(const Variant& variant, std::int64_t steps = 13) const {
    auto options = sim_job(variant, ranks(), steps);
    options.servers = GetParam().servers;
    return options;
  }
  int ranks() const { return GetParam().ranks; }
  bool follows_clock() const { return GetParam().variant.configure().follows_clock(); }

  // Where measured times decide, other times may give other weights; never different ones on different ranks.
  void expect_unmoved(const SimJobResult& result, const SimJobResult& usual) const {
    if (follows_clock()) {
      EXPECT_TRUE(result.agreement());
    } else {
      expect_same_weights(result, usual);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Registry, Conformance, testing::ValuesIn(cases()),
                         [](const auto& info) { return test_name(info.param.name()); });

TEST_P(Conformance, RanksAreBitEqualAfterFinish) {
  for (std::int64_t steps : {0, 1, 2, 3, 4, 5, 12, 13}) {
    EXPECT_TRUE(run_sim_job(job(steps)).agreement()) << steps << " steps";
  }
}

// A strategy that builds on one optimizer's rule may refuse the others, but says which it needs before it starts.
TEST_P(Conformance, WorksWithAdamwOrNamesTheOptimizerItNeeds) {
  auto adam = job();
  adam.optimizer = {.kind = "adamw", .lr = 0.01};
  try {
    EXPECT_TRUE(run_sim_job(adam).agreement());
  } catch (const ConfigError& refusal) {
    EXPECT_NE(std::string(refusal.what()).find("optimizer="), std::string::npos) << refusal.what();
  }
}

TEST_P(Conformance, Learns) {
  auto mlp = job(60);
  mlp.task = std::make_shared<MlpTask>();
  mlp.optimizer = {.lr = 0.05, .momentum = 0.9};
  mlp.lr = {};
  const auto result = run_sim_job(mlp);
  ASSERT_TRUE(result.agreement());
  for (const SimRankResult& rank : result.ranks) EXPECT_LT(rank.steps.back().loss, 0.5 * rank.steps.front().loss);
}

TEST_P(Conformance, SaveAndResumeEqualsUninterrupted) {
  Diary whole;
  const auto uninterrupted = run_with_diary(job(), whole);
  for (std::int64_t cut : {0, 1, 2, 3, 4, 7, 12, 13}) {
    SCOPED_TRACE(fmt::format("saved after {} steps", cut));
    auto options = job();
    options.stop_after = cut;
    const auto saved = run_sim_job(options);
    ASSERT_TRUE(saved.saved.has_value());
    options.stop_after.reset();
    options.resume = &*saved.saved;
    Diary rest;
    const auto resumed = run_with_diary(options, rest);
    expect_unmoved(resumed, uninterrupted);
    EXPECT_EQ(rest.size(), static_cast<std::size_t>(ranks() * (13 - cut)));
    if (follows_clock()) continue;
    for (const auto& [place, weights] : rest) {
      EXPECT_TRUE(same_bits(weights, whole[place])) << "rank " << place.first << " after step " << place.second;
    }
  }
}

// Checkpoints through real files: writing them moves nobody, and a job that goes on from one ends where the
// uninterrupted one does, step by step.
TEST_P(Conformance, ResumedFromFilesEqualsUninterrupted) {
  const TempDir files(kMemory);
  Diary whole;
  const auto uninterrupted = run_with_diary(job(), whole);
  auto saving = job();
  saving.checkpoints = {.folder = files.path(), .every = {.steps = 5}};
  expect_unmoved(run_sim_job(saving), uninterrupted);
  for (std::int64_t cut : {5, 10}) {
    SCOPED_TRACE(fmt::format("saved after {} steps", cut));
    auto options = job();
    options.resume_from = step_folder(files.path(), cut);
    Diary rest;
    expect_unmoved(run_with_diary(options, rest), uninterrupted);
    EXPECT_EQ(rest.size(), static_cast<std::size_t>(ranks() * (13 - cut)));
    if (follows_clock()) continue;
    for (const auto& [place, weights] : rest) {
      EXPECT_TRUE(same_bits(weights, whole[place])) << "rank " << place.first << " after step " << place.second;
    }
  }
}

// The same with a model of several buckets, of which some are on their way while others are computed. Where measured
// times decide, what was decided goes on: the plan is in the file.
TEST_P(Conformance, ResumesModelsOfSeveralBuckets) {
  if (ranks() != 3 || GetParam().servers % 2 != 0 || !GetParam().variant.set.empty()) return;
  const TempDir files(kMemory);
  const auto large = [this] {
    auto options = job(5);
    options.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = {262'200, 3, 5'000}});
    options.world.link = {0.0005, 100e6};
    return options;
  };
  auto saving = large();
  saving.checkpoints = {.folder = files.path(), .every = {.steps = 2}, .keep = 1};
  const auto uninterrupted = run_sim_job(saving);
  auto resuming = large();
  resuming.resume_from = files.path();
  const auto resumed = run_sim_job(resuming);
  EXPECT_EQ(resumed.ranks[0].steps.front().t, 4);
  expect_unmoved(resumed, uninterrupted);
}

// More or fewer workers and servers go on from the checkpoint: at its step, and they end in agreement.
TEST_P(Conformance, ResumesWithOtherNumbersOfWorkersAndServers) {
  if (ranks() != 3 || !GetParam().variant.set.empty()) return;
  const TempDir files(kMemory);
  auto saving = job();
  saving.checkpoints = {.folder = files.path(), .every = {.steps = 5}};
  ASSERT_TRUE(run_sim_job(saving).all_finished());
  for (const int workers : {1, 2, 3, 5}) {
    for (const int servers : {0, 1, 2}) {
      if (workers == 3 && servers == GetParam().servers) continue;
      SCOPED_TRACE(fmt::format("{} workers, {} servers", workers, servers));
      auto options = job();
      options.world.ranks = workers;
      options.servers = servers;
      options.resume_from = step_folder(files.path(), 5);
      const auto resumed = run_sim_job(options);
      ASSERT_TRUE(resumed.all_finished()) << resumed.ranks[0].outcome.error;
      EXPECT_TRUE(resumed.agreement());
      for (const SimRankResult& rank : resumed.ranks) {
        ASSERT_EQ(rank.steps.size(), 8U);
        EXPECT_EQ(rank.steps.front().t, 5);
      }
      if (!job().make_strategy()->needs_servers()) break;  // their number means nothing
    }
  }
}

// Strategy::owed() is the entry "residual" of visit(): checkpoints of other numbers of workers find it by that name.
TEST_P(Conformance, NamesWhatItOwesAsResidual) {
  if (ranks() != 2) return;
  struct Finder final : StateVisitor {
    std::span<float> residual{};
    void floats(std::string_view name, std::span<float> values) override {
      if (name == "residual") residual = values;
    }
    void integer(std::string_view, std::int64_t&) override {}
  };
  const SimJobOptions options = job();
  if (options.make_strategy()->needs_servers()) return;  // they send whole gradients
  SimWorld world(options.world);
  const auto outcomes = world.run([&](SimPort& port) {
    FlatModel model(options.task->parameters());
    Engine engine(port, model, options.make_strategy(), {.optimizer = options.optimizer});
    Finder finder;
    engine.strategy().visit(finder);
    const auto owed = engine.strategy().owed();
    EXPECT_EQ(owed.data(), finder.residual.data());
    EXPECT_EQ(owed.size(), finder.residual.size());
    engine.finish();
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.finished()) << outcome.error;
}

TEST_P(Conformance, SendsTheBytesItsFormulaSays) {
  const auto configured = GetParam().variant.configure();
  for (const std::vector<std::size_t>& layers : {std::vector<std::size_t>{6, 1, 0, 11, 2}, {5000, 3, 40}, {1}}) {
    auto options = job();
    options.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = layers});
    const FlatModel model(options.task->parameters());
    double all_sent = 0, all_received = 0;
    const SimJobResult result = run_sim_job(options);
    for (int r = 0; r < ranks(); ++r) {
      const SimRankResult& rank = result.ranks[static_cast<std::size_t>(r)];
      ASSERT_EQ(rank.steps.size(), 13U);
      for (const SimStepRecord& step : rank.steps) {
        if (!configured.follows_clock()) {
          EXPECT_DOUBLE_EQ(step.bytes_sent, configured.bytes_sent({model, ranks(), step.t, r, GetParam().servers}))
              << "step " << step.t << " of rank " << r << ", " << model.count() << " parameters";
        }
        all_sent += step.bytes_sent;
        all_received += step.bytes_received;
      }
      all_sent += rank.start.bytes_sent + rank.finish.bytes_sent;
      all_received += rank.start.bytes_received + rank.finish.bytes_received;
    }
    for (const SimServerResult& server : result.servers) {
      all_sent += server.bytes_sent;
      all_received += server.bytes_received;
    }
    EXPECT_NEAR(all_sent, all_received, 1e-6) << "what one sends another receives";
    EXPECT_TRUE(ranks() > 1 || GetParam().servers > 0 || all_sent == 0.0) << "one worker alone sent something";
  }
}

TEST_P(Conformance, SpeedOptionsLeaveTheWeightsAlone) {
  const auto usual = run_sim_job(job());
  const auto configured = GetParam().variant.configure();
  for (const Option& option : configured.options.all()) {
    if (option.changes != Changes::kSpeed) continue;
    for (const std::string& pair : other_values(option)) {
      SCOPED_TRACE(pair);
      const Variant faster = GetParam().variant.with(pair);
      if (faster.legal()) expect_unmoved(run_sim_job(job(faster)), usual);
    }
  }
}

TEST_P(Conformance, TakesEmptyAndOneElementLayers) {
  using Layers = std::vector<std::size_t>;
  for (const Layers& layers : {Layers{}, Layers{0}, Layers{1}, Layers{0, 0, 1, 0}, Layers{1, 1, 1}, Layers{3, 0}}) {
    auto options = job(6);
    options.task = std::make_shared<QuadraticTask>(QuadraticOptions{.layers = layers});
    EXPECT_TRUE(run_sim_job(options).agreement()) << fmt::format("layers of {}", fmt::join(layers, ", "));
  }
}

// All others end with an error that names the lost rank; none hangs (SimWorld's time is bounded) and none believes to
// be done.
void expect_all_notice(const SimJobResult& result, int lost) {
  for (int r = 0; r < static_cast<int>(result.ranks.size()); ++r) {
    const RankOutcome& outcome = result.ranks[static_cast<std::size_t>(r)].outcome;
    EXPECT_TRUE(result.ranks[static_cast<std::size_t>(r)].weights.empty()) << "rank " << r << " has a result";
    if (r == lost) {
      EXPECT_EQ(outcome.kind, RankOutcome::Kind::kCrashed);
    } else {
      EXPECT_EQ(outcome.kind, RankOutcome::Kind::kFailed) << "rank " << r;
      EXPECT_TRUE(names_rank(outcome.error, lost)) << "rank " << r << ": " << outcome.error;
    }
  }
}

TEST_P(Conformance, ALostPeerIsAnErrorThatNamesIt) {
  for (int lost : std::set<int>{0, ranks() / 2, ranks() - 1}) {
    for (std::int64_t step : {0, 1, 3, 4, 6, 12}) {
      SCOPED_TRACE(fmt::format("rank {} is lost at step {}", lost, step));
      auto options = job();
      options.world.faults = {Fault::crash(lost, FaultPoint::at_step(step))};
      expect_all_notice(run_sim_job(options), lost);
    }
  }
}

TEST_P(Conformance, APeerLostAtAnyMomentIsAnError) {
  const double whole_s = run_sim_job(job()).seconds;
  for (double share : {0.05, 0.21, 0.37, 0.58, 0.73, 0.94}) {
    SCOPED_TRACE(fmt::format("the last rank is lost after {} of the time", share));
    auto options = job();
    options.world.faults = {Fault::crash(ranks() - 1, FaultPoint::at_time(share * whole_s))};
    expect_all_notice(run_sim_job(options), ranks() - 1);
  }
}

TEST_P(Conformance, StragglersAndSlowLinksChangeNoBit) {
  const auto usual = run_sim_job(job());
  const int last = ranks() - 1;

  auto straggling = job();
  for (int r = 0; r < ranks(); ++r) straggling.compute_factors.push_back(r % 3 == 1 ? 7.5 : 1.0 + 0.1 * r);
  const auto straggled = run_sim_job(straggling);
  expect_unmoved(straggled, usual);
  // Where nobody waits for stragglers, another order on the ports may even save a little.
  EXPECT_TRUE(follows_clock() || straggled.seconds >= 0.95 * usual.seconds);

  auto slow = job();
  slow.world.faults = {Fault::slow_rank(last, 20.0, FaultPoint::at_step(2), FaultPoint::at_step(9)),
                       Fault::freeze(0, FaultPoint::at_step(5), 3.0)};
  if (ranks() > 1) slow.world.pair_links[{0, last}] = {0.05, 3000.0};
  const auto slowed = run_sim_job(slow);
  expect_unmoved(slowed, usual);
  EXPECT_GT(slowed.seconds, usual.seconds);
}

TEST_P(Conformance, TheOrderInWhichRanksRunChangesNoBit) {
  const auto usual = run_sim_job(job());
  for (std::uint64_t seed = 2; seed < 8; ++seed) {
    auto options = job();
    options.world.seed = seed;
    expect_unmoved(run_sim_job(options), usual);
  }
}

TEST_P(Conformance, TheSameSeedGivesTheSameWeightsAndTimes) {
  const auto first = run_sim_job(job()), second = run_sim_job(job());
  expect_same_weights(second, first);
  EXPECT_EQ(second.seconds, first.seconds);
  for (std::size_t r = 0; r < first.ranks.size(); ++r) {
    EXPECT_EQ(second.ranks[r].outcome, first.ranks[r].outcome);
    EXPECT_EQ(second.ranks[r].steps, first.ranks[r].steps);
    EXPECT_EQ(second.ranks[r].start, first.ranks[r].start);
    EXPECT_EQ(second.ranks[r].finish, first.ranks[r].finish);
  }
  auto other = job();
  other.seed = 2;  // of the first weights
  EXPECT_FALSE(same_bits(run_sim_job(other).ranks[0].weights, first.ranks[0].weights));
}

class Documentation : public testing::TestWithParam<StrategyInfo> {};

std::vector<StrategyInfo> infos() {
  const Registry registry = Registry::builtin();
  return registry.all();
}

INSTANTIATE_TEST_SUITE_P(Registry, Documentation, testing::ValuesIn(infos()),
                         [](const auto& info) { return test_name(info.param.name); });

TEST_P(Documentation, IsComplete) {
  const StrategyInfo& info = GetParam();
  for (const std::string* text : {&info.name, &info.title, &info.paper, &info.bytes_per_step, &info.waits_for}) {
    EXPECT_FALSE(text->empty());
    EXPECT_EQ(text->find('\n'), std::string::npos) << *text;
  }
  EXPECT_FALSE(info.pseudo_code.empty());
  EXPECT_FALSE(info.notes.empty());
  const auto configured = info.configure();
  EXPECT_NE(configured.options.owner().find(info.name), std::string::npos) << "errors name the strategy";
  for (const Option& option : configured.options.all()) {
    EXPECT_FALSE(option.help.empty()) << option.name;
    option.set(option.default_value);  // throws where the default is not one of the allowed values
  }
}

const std::filesystem::path kStrategies = SLIPSTREAM_SOURCE_DIR "/src/strategy";

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// The n of every "(n)" in `lines` that `where` finds in them.
std::set<int> numbers(const std::vector<std::string>& lines, const std::regex& where) {
  std::set<int> found;
  const std::regex number("\\(([0-9]+)\\)");
  for (const std::string& line : lines) {
    std::smatch place;
    if (!std::regex_search(line, place, where)) continue;
    const std::string text = place[1];
    for (std::sregex_iterator n(text.begin(), text.end(), number), end; n != end; ++n) found.insert(std::stoi((*n)[1]));
  }
  return found;
}

TEST_P(Documentation, NumberedLinesOfTheCardStandInTheSource) {
  const Card card = find_card(GetParam().name);
  const auto told = numbers(card.pseudo_code, std::regex("^ *(\\([0-9]+\\))"));
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(*told.begin(), 1);
  EXPECT_EQ(*told.rbegin(), static_cast<int>(told.size())) << "numbers go from 1 on, without gaps";
  std::set<int> done;
  for (const std::string& source : card.sources) {
    done.merge(numbers(lines_of(kStrategies / source), std::regex("[;{}] *// *((\\([0-9]+\\),? ?)+)")));
  }
  EXPECT_EQ(done, told) << "at the line ends of the sources that cards/" << card.name << ".md names";
}

TEST_P(Documentation, PseudoCodeStandsInTheCardAlone) {
  const Card card = find_card(GetParam().name);
  auto header = kStrategies / card.sources.front();
  header.replace_extension(".h");
  const auto lines = lines_of(header);
  const std::string reference = fmt::format("cards/{}.md", card.name);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(),
                          [&](const std::string& line) { return line.find(reference) != std::string::npos; }))
      << header << " should say: see " << reference;
  EXPECT_TRUE(numbers(lines, std::regex("^// *(\\([0-9]+\\))")).empty()) << "in a comment of " << header;
}

}  // namespace
}  // namespace slipstream::test
