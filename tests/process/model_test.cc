// SPDX-License-Identifier: Apache-2.0
//
// Trained models as users handle them: evaluated on the way, tested again, and trained on.
#include "process/job.h"

namespace slipstream::test {
namespace {

const Variables kOneThread{{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}};

class TrainedModel : public Job {
 protected:
  Ended train_to(const std::string& out, const Words& flags) const {
    return run(train(Words{"--workers", "2", "--out", path(out)} + flags), kOneThread);
  }
  nlohmann::json summary(const std::string& out) const {
    return nlohmann::json::parse(read_text(path(out) + "/summary.json"));
  }
  std::vector<nlohmann::json> ledger(const std::string& out) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_text(path(out) + "/ledger.rank0.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
};

TEST_F(TrainedModel, IsEvaluatedOnTheWayWithoutChangingTheTraining) {
  const Words flags{"--steps", "20", "--strategy", "local", "--set", "period=8"};
  const Ended plain = train_to("plain", flags);
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const Ended watched = train_to("watched", flags + Words{"--eval-every", "6"});
  ASSERT_EQ(watched.exit_code, 0) << watched.err;
  expect_words(watched.err, {"step 6: test accuracy", "step 12: test accuracy", "step 18: test accuracy"});
  std::vector<std::int64_t> at;
  for (const auto& line : ledger("watched")) {
    if (line.contains("test_accuracy")) at.push_back(line["step"]);
  }
  EXPECT_EQ(at, (std::vector<std::int64_t>{6, 12, 18}));
  EXPECT_EQ(read_text(path("watched/model.pt")), read_text(path("plain/model.pt")));
}

TEST_F(TrainedModel, IsTestedAgainFromTheRunAFileOrACheckpoint) {
  ASSERT_EQ(train_to("out", {"--steps", "20", "--checkpoint-every", "20"}).exit_code, 0);
  ASSERT_EQ(run(slipstream({"ckpt", "convert", path("out/checkpoints"), path("model.safetensors")})).exit_code, 0);
  const double accuracy = summary("out")["test_accuracy"];
  const Words of_this_model{"--task", "images", "--data", files_.path().string(), "--model", "mlp"};
  for (const Words& which :
       {Words{path("out")}, Words{path("out/model.pt")} + of_this_model,
        Words{path("model.safetensors")} + of_this_model, Words{path("out/checkpoints")} + of_this_model}) {
    const Ended tested = run(slipstream(Words{"eval", "--json"} + which), kOneThread);
    ASSERT_EQ(tested.exit_code, 0) << which[0] << ": " << tested.err;
    EXPECT_NEAR(nlohmann::json::parse(tested.out)["test_accuracy"], accuracy, 1e-6) << which[0];
  }
}

TEST_F(TrainedModel, IsTrainedOnFromItsWeights) {
  ASSERT_EQ(train_to("out", {"--steps", "60"}).exit_code, 0);
  const Ended on = train_to("on", {"--steps", "1", "--lr", "1e-6", "--init", path("out/model.pt")});
  ASSERT_EQ(on.exit_code, 0) << on.err;
  EXPECT_NEAR(summary("on")["test_accuracy"], summary("out")["test_accuracy"], 0.04);
  EXPECT_LT(ledger("on")[0]["loss"], ledger("out")[0]["loss"].get<double>() / 2);
}

TEST_F(TrainedModel, OfAnotherKindIsRefusedWithTheDifference) {
  ASSERT_EQ(train_to("out", {"--steps", "1"}).exit_code, 0);
  const Words cnn{"--task", "images", "--data", files_.path().string(), "--model", "cnn"};
  expect_failure(run(slipstream(Words{"eval", path("out/model.pt")} + cnn)), 2,
                 {"model.pt", "is it of another model?"});
  files_.write("nonsense.pt", "no model");
  expect_failure(run(slipstream(Words{"eval", path("nonsense.pt")} + cnn)), 3, {"nonsense.pt", "torch.save"});
  expect_failure(run(slipstream(Words{"eval", path("nowhere.pt")} + cnn)), 3, {"nowhere.pt", "cannot be read"});
}

}  // namespace
}  // namespace slipstream::test
