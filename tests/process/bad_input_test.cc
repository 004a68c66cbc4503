// SPDX-License-Identifier: Apache-2.0
//
// Whatever the user gets wrong ends in the documented exit code and a message that names it.
#include "process/job.h"

namespace slipstream::test {
namespace {

class BadData : public Job {
 protected:
  void expect_refused(const Words& words) const {
    Program program(train({"--workers", "2", "--steps", "2"}));
    expect_failure(program.wait(), 3, words);
    EXPECT_TRUE(program.all_gone());
  }
};

TEST_F(BadData, MissingDirectoryIsNamed) {
  const std::string missing = path("no-such-directory");
  expect_failure(run(train({"--data", missing})), 3, {missing});
}

TEST_F(BadData, TruncatedIdxFileIsNamedWithThePlaceWhereItEnds) {
  std::filesystem::resize_file(path("train-images-idx3-ubyte"), 1000);
  expect_refused({"train-images-idx3-ubyte", "truncated", "byte 1000"});
}

TEST_F(BadData, WrongMagicNumberIsShown) {
  files_.write("train-labels-idx1-ubyte", std::string("\x12\x34\x56\x78", 4) + std::string(100, '\0'));
  expect_refused({"train-labels-idx1-ubyte", "12345678"});
}

TEST_F(BadData, LabelOutOfRangeIsNamedWithItsPlace) {
  write_images(files_, 77);
  expect_refused({"train-labels-idx1-ubyte", "label 77", "byte 263"});
}

TEST_F(BadData, TextOfThreeCharactersIsTooShort) {
  const std::string text = files_.write("short.txt", "abc");
  expect_failure(run(slipstream({"train", "--task", "text", "--data", text, "--workers", "2"})), 3,
                 {text, "3 characters"});
}

class BadUsage : public Job {
 protected:
  void expect_refused(const Words& flags, const Words& words) const { expect_failure(run(train(flags)), 2, words); }
};

TEST_F(BadUsage, UnknownNamesAreAnsweredWithTheNearestValidOne) {
  expect_refused({"--momentun", "0.5"}, {"--momentun", "--momentum"});
  expect_refused({"--strategy", "lokal"}, {"'lokal'", "'local'"});
  expect_refused({"--strategy", "local", "--set", "perod=3"}, {"'perod'", "'period'"});
  expect_refused({"--task", "imges"}, {"imges", "images"});
  expect_failure(run(slipstream({"trian"})), 2, {"trian", "train"});
  expect_failure(run(slipstream({"explain", "ssggd"})), 2, {"'ssggd'", "'ssgd'"});
}

TEST_F(BadUsage, UnknownTomlKeyIsNamedWithFileLineAndTheNearestOne) {
  const std::string file = files_.write("job.toml", "seed = 3\n\nlr_shedule = 'cosine'\n");
  expect_refused({"--config", file}, {file + ":3", "lr_shedule", "lr_schedule"});
}

TEST_F(BadUsage, BrokenTomlIsNamedWithFileAndLine) {
  const std::string file = files_.write("job.toml", "seed = 3\nlr = = 2\n");
  expect_refused({"--config", file}, {file + ":2"});
  expect_refused({"--config", path("none.toml")}, {path("none.toml")});
}

TEST_F(BadUsage, ValuesOutOfRangeAreShownWithTheRange) {
  expect_refused({"--workers", "0"}, {"workers", "0", "1 to 4096"});
  expect_refused({"--momentum", "1.5"}, {"momentum", "1.5", "0 to 0.9999"});
  expect_refused({"--lr", "fast"}, {"lr", "'fast'"});
  expect_refused({"--strategy", "local", "--set", "period=0"}, {"period", "0"});
}

TEST_F(BadUsage, BatchLargerThanTheShardSaysWhatFits) {
  expect_refused({"--workers", "2", "--batch", "129"}, {"batch = 129", "1 to 128"});
}

TEST_F(BadUsage, UnwritableOutputIsNamedBeforeAWorkerStarts) {
  const std::string below_a_file = files_.write("file", "") / "out";
  const Ended ended = run(train({"--out", below_a_file}));
  expect_failure(ended, 2, {below_a_file});
  EXPECT_EQ(ended.err.find(kTraining), std::string::npos);
  expect_refused({"--out", "/proc/slipstream"}, {"/proc/slipstream"});
}

TEST_F(BadUsage, PortInUseIsNamed) {
  const Listener taken;
  expect_refused(by_hand(0, 2, taken.port()), {taken.port(), "in use", "--master-port"});
}

TEST_F(BadUsage, RankNeedsTheRestOfThePlacement) {
  expect_refused({"--rank", "0"}, {"--world-size"});
  expect_refused({"--rank", "2", "--world-size", "2", "--master-addr", "127.0.0.1"}, {"rank 2"});
}

TEST_F(BadUsage, DifferentFlagsOnTwoRanksAreRefusedByBoth) {
  const std::string port = free_port();
  Program one(train(Words{"--lr", "0.2", "--steps", "4"} + by_hand(1, 2, port)));
  const Words told{"different options: rank 0 has lr=0.1, rank 1 lr=0.2"};
  expect_failure(run(train(Words{"--lr", "0.1", "--steps", "4"} + by_hand(0, 2, port))), 2, told);
  expect_failure(one.wait(), 2, told);
}

TEST_F(BadUsage, ADifferentOptionOfTheStrategyIsNamed) {
  const std::string port = free_port();
  const auto topk = [&](int rank, const std::string& set) {
    return train(Words{"--strategy", "topk", "--set", set, "--steps", "4"} + by_hand(rank, 2, port));
  };
  Program one(topk(1, "density=0.01"));
  expect_failure(run(topk(0, "density=0.005")), 2, {"rank 0 has density=0.005, rank 1 density=0.01"});
  expect_failure(one.wait(), 2, {"density"});
}

TEST_F(BadUsage, TwoProcessesOfOneRankAreRefused) {
  const std::string port = free_port();
  Program zero(endless(by_hand(0, 3, port)));
  Program one(endless(by_hand(1, 3, port)));
  Program another(endless(by_hand(1, 3, port)));
  expect_failure(Program::first_to_end(one, another), 2, {"two processes claim rank 1"});
}

TEST_F(BadUsage, DivergenceIsReportedByAllRanksWithStepAndTensor) {
  Program program(endless({"--workers", "2", "--lr", "1000"}));
  const Ended ended = program.wait();
  expect_failure(ended, 2, {"not a finite number at step", "weight' holds a value that is not finite", "--lr"});
  EXPECT_TRUE(program.all_gone());

  const std::string port = free_port();
  Program one(endless(Words{"--lr", "1000"} + by_hand(1, 2, port)));
  expect_failure(run(endless(Words{"--lr", "1000"} + by_hand(0, 2, port))), 2, {"not a finite number at step"});
  expect_failure(one.wait(), 2, {"not a finite number at step"});
}

// So short that no step is left to tell it.
TEST_F(BadUsage, DivergenceIsNoSuccessHoweverShortTheRun) {
  const Ended ended = run(train({"--workers", "2", "--lr", "1000", "--steps", "20", "--out", path("out")}));
  ASSERT_NE(read_text(path("out/ledger.rank0.jsonl")).find("\"loss\":null"), std::string::npos);
  expect_failure(ended, 2, {"not a finite number at step"});
}

TEST_F(BadUsage, RankThatNeverJoinsIsNamed) {
  const std::string port = free_port();
  const Words flags = {"--join-timeout", "2"};
  expect_failure(run(train(flags + by_hand(0, 2, port))), 4, {"rank 1 of 2 did not join within 2 s"});
  expect_failure(run(train(flags + by_hand(1, 2, port))), 4, {"127.0.0.1:" + port, "rank 0"});
}

}  // namespace
}  // namespace slipstream::test
