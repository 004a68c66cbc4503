// SPDX-License-Identifier: Apache-2.0
#include "process/job.h"

namespace slipstream::test {
namespace {

const char* const kContract[] = {"strategy",
                                 "options",
                                 "task",
                                 "model",
                                 "parameters",
                                 "workers",
                                 "servers",
                                 "steps",
                                 "seed",
                                 "wall_seconds",
                                 "samples_per_second",
                                 "step_ms_median",
                                 "compute_ms_median",
                                 "update_ms_median",
                                 "encode_ms_median",
                                 "exposed_ms_median",
                                 "hidden_fraction",
                                 "bytes_sent_per_step",
                                 "bytes_received_per_step",
                                 "threads",
                                 "voluntary_switches_per_step",
                                 "final_loss",
                                 "test_accuracy",
                                 "agreement"};

Words local_sgd(const std::string& out) {
  return slipstream({"train", "--workers", "3", "--strategy", "local", "--set", "period=4", "--task", "fashion-mnist",
                     "--model", "mlp", "--steps", "40", "--out", out});
}

TEST(Train, LeavesTheFilesOfTheContract) {
  const TempDir files;
  const std::string out = files.path() / "a";
  const Ended ended = run(local_sgd(out));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;

  const auto summary = read_json(out + "/summary.json");
  for (const char* key : kContract) EXPECT_TRUE(summary.contains(key)) << key;
  EXPECT_EQ(summary["agreement"], true);
  EXPECT_EQ(summary["interrupted"], false);
  EXPECT_EQ(summary["workers"], 3);
  EXPECT_EQ(summary["steps"], 40);
  EXPECT_EQ(summary["options"]["period"], 4);
  EXPECT_EQ(summary["parameters"], 784 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10);
  EXPECT_GT(summary["test_accuracy"], 0.5);  // guessing reaches 0.1
  EXPECT_GE(summary["threads"], 2);          // one trains, one moves bytes
  EXPECT_LE(summary["threads"], 8);

  for (int rank = 0; rank < 3; ++rank) {
    std::istringstream ledger(read_text(out + "/ledger.rank" + std::to_string(rank) + ".jsonl"));
    int step = 0;
    for (std::string line; std::getline(ledger, line); ++step) {
      const auto record = nlohmann::json::parse(line);
      EXPECT_EQ(record["step"], step);
      EXPECT_EQ(record["bytes_sent"] > 0, step % 4 == 3) << "step " << step;
    }
    EXPECT_EQ(step, 40);
  }

  std::vector<int> events_of_rank(3);
  const auto trace = read_json(out + "/trace.json");
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") ++events_of_rank.at(event["pid"].get<std::size_t>() - 1);  // processes count from 1
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_GE(events_of_rank[rank], 35) << "rank " << rank;

  const Ended loaded = python(
      "import sys, torch\n"
      "for k, v in torch.load(sys.argv[1]).items(): print(k, *v.shape, v.dtype)\n",
      {out + "/model.pt"});
  EXPECT_EQ(loaded.out,
            "first.weight 1024 784 torch.float32\nfirst.bias 1024 torch.float32\n"
            "second.weight 1024 1024 torch.float32\nsecond.bias 1024 torch.float32\n"
            "last.weight 10 1024 torch.float32\nlast.bias 10 torch.float32\n")
      << loaded.err;

  const Ended again = run(slipstream({"train", "--config", out + "/config.toml", "--out", files.path() / "b"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(read_text(out + "/model.pt"), read_text(files.path() / "b/model.pt")) << "config.toml gave another run";
}

class Weights : public Job {};

TEST_F(Weights, AreBitIdenticalForTheSameSeedAndOthersForAnother) {
  for (const char* workers : {"2", "3"}) {
    for (const auto& [name, seed] : {std::pair{"a", "5"}, std::pair{"b", "5"}, std::pair{"c", "6"}}) {
      const Ended ended =
          run(train({"--workers", workers, "--steps", "10", "--seed", seed, "--out", path(name), "--overwrite"}));
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
    }
    EXPECT_EQ(read_text(path("a/model.pt")), read_text(path("b/model.pt"))) << workers << " workers";
    EXPECT_NE(read_text(path("a/model.pt")), read_text(path("c/model.pt"))) << workers << " workers";
  }
}

TEST_F(Weights, OfFourWorkersEqualThoseOfOneWithFourTimesTheBatch) {
  ASSERT_EQ(run(train({"--workers", "4", "--steps", "20", "--batch", "16", "--out", path("four")})).exit_code, 0);
  ASSERT_EQ(run(train({"--workers", "1", "--steps", "20", "--batch", "64", "--out", path("one")})).exit_code, 0);
  EXPECT_LT(largest_difference(path("four/model.pt"), path("one/model.pt")), 1e-5);
}

TEST_F(Weights, DoNotDependOnTheNumberOfMicroBatches) {
  for (const char* parts : {"1", "4"}) {
    const Ended ended = run(
        train({"--workers", "2", "--steps", "10", "--accumulate", parts, "--out", path(std::string("in") + parts)}));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }
  EXPECT_LT(largest_difference(path("in1/model.pt"), path("in4/model.pt")), 1e-5);
}

class EveryStrategy : public Job {
 protected:
  static Words names() {
    std::istringstream lines(run(slipstream({"list"})).out);
    Words found;
    for (std::string line; std::getline(lines, line) && !line.empty();) found.push_back(line.substr(0, line.find(' ')));
    return found;
  }
  void expect_agreement(const Words& flags) const {
    const Ended ended = run(train(Words{"--steps", "12", "--json"} + flags));
    ASSERT_EQ(ended.exit_code, 0) << testing::PrintToString(flags) << ended.err;
    EXPECT_EQ(nlohmann::json::parse(ended.out)["agreement"], true) << testing::PrintToString(flags);
  }
};

TEST_F(EveryStrategy, LeavesEqualWeightsOnAllRanks) {
  const Words all = names();
  ASSERT_GE(all.size(), 2U);
  for (const std::string& name : all) expect_agreement({"--strategy", name, "--workers", "3"});
  for (const char* name : {"ssgd", "lags", "gs", "dasgd", "ssd", "osp"}) {
    expect_agreement({"--strategy", name, "--workers", "2"});
  }
}

TEST_F(EveryStrategy, ThatRoundsForTheWireLeavesEqualWeightsToo) {
  for (const std::string& name : names()) {
    const std::string explained = run(slipstream({"explain", name})).out;
    const std::size_t at = explained.find("--set wire=");
    if (at == std::string::npos) continue;
    // Its entry may have several lines.
    const std::string entry =
        explained.substr(at, std::min(explained.find("\n  --", at), explained.find("\n\n", at)) - at);
    const std::string choices = entry.substr(entry.rfind('('));
    for (const std::string format : {"fp16", "bf16", "fp8", "int8"}) {
      if (choices.find(format) == std::string::npos) continue;
      expect_agreement({"--strategy", name, "--workers", "3", "--set", "wire=" + format});
    }
  }
  expect_agreement({"--strategy", "ssgd", "--workers", "2", "--set", "wire=fp16"});
}

TEST_F(EveryStrategy, ThatSendsDifferencesLeavesEqualWeightsToo) {
  for (const char* codec : {"codec=topk", "codec=half", "codec=sketch"}) {
    expect_agreement({"--strategy", "dasgd", "--workers", "3", "--set", codec});
  }
}

class Json : public Job {};

TEST_F(Json, IsTheOnlyLineOnStandardOutput) {
  const Ended ended = run(train({"--workers", "2", "--steps", "6", "--json"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  ASSERT_FALSE(ended.out.empty());
  EXPECT_EQ(ended.out.find('\n'), ended.out.size() - 1);
  EXPECT_EQ(nlohmann::json::parse(ended.out)["steps"], 6);
}

TEST(BenchWire, PrintsARowForEverySizeItVerified) {
  const Ended ended = run(slipstream({"bench", "wire", "--workers", "2", "--max-mib", "1", "--repeats", "3"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_words(ended.out, {"every result verified", "over 2 workers"});
  for (std::size_t bytes = 4; bytes <= 1 << 20; bytes *= 4)
    expect_words(ended.out, {" " + std::to_string(bytes) + " |"});
  EXPECT_EQ(ended.out.find(" 4194304 |"), std::string::npos) << "more than --max-mib asked for";
}

}  // namespace
}  // namespace slipstream::test
