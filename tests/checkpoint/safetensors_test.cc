// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <slipstream/base/error.h>

#include <cstring>
#include <random>

#include "base/hash.h"
#include "checkpoint/state_archive.h"
#include "kit/fuzz.h"
#include "task/files.h"

namespace slipstream::test {
namespace {

std::string bytes_in(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

StateArchive example() {
  StateArchive state;
  state.put("model/a", std::vector<float>{1, -2, 3.5F, -0.0F, 5, 6});
  state.put("none", std::vector<float>{});
  state.put("optim/steps", std::int64_t{-7});
  state.put("rng", StateArchive::Raw{Dtype::kU8, {3}, {std::byte{1}, std::byte{255}, std::byte{0}}});
  return state;
}

std::string with_length(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

// The message of the DataError that reading this file throws.
std::string refusal(const std::string& content) {
  const TempDir dir;
  dir.write("x", content);
  try {
    const SafetensorsFile file(dir.path() / "x");
  } catch (const DataError& e) {
    EXPECT_NE(std::string(e.what()).find((dir.path() / "x").string()), std::string::npos) << e.what();
    return e.what();
  }
  return "";
}

TEST(Safetensors, AFileHoldsWhatWasWritten) {
  const TempDir dir;
  const StateArchive state = example();
  const auto sum = write_safetensors(dir.path() / "x", state.tensors({{"model/a", {2, 3}}}), {{"format", "pt"}});
  const std::string written = bytes_in(dir.path() / "x");
  EXPECT_EQ(sum, (FileSum{written.size(), hash_bytes(std::as_bytes(std::span(written)))}));
  const SafetensorsFile file(dir.path() / "x", &sum);
  EXPECT_EQ(file.notes().at("format"), "pt");
  StateArchive read;
  read.add(file.tensors());
  EXPECT_EQ(read.entries(), state.entries());
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.name == "model/a") {
      EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{2, 3}));
    }
  }
}

// The layout as the format's description has it, byte by byte.
TEST(Safetensors, TheLayoutIsThatOfTheFormat) {
  const TempDir dir;
  const float one = 1;
  write_safetensors(dir.path() / "x", {{"w", Dtype::kF32, {1, 1}, std::as_bytes(std::span(&one, 1))}});
  std::string header = R"({"w":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(bytes_in(dir.path() / "x"), with_length(header, std::string("\0\0\x80\x3f", 4)));
}

TEST(Safetensors, WhatDoesNotFitIsRefusedWithThePlace) {
  const auto tensor = [](const std::string& text) { return R"({"w":)" + text + "}"; };
  EXPECT_NE(refusal("abc").find("at byte 0"), std::string::npos);
  EXPECT_NE(refusal(with_length("{}").substr(0, 9)).find("a header of 2 bytes in a file of 9"), std::string::npos);
  EXPECT_NE(refusal(std::string(8, '\xff') + "{}").find("at byte 0"), std::string::npos);
  EXPECT_NE(refusal(with_length("{\"w\": nonsense}")).find("at byte 15"), std::string::npos);
  EXPECT_NE(refusal(with_length("[]")).find("at byte 8"), std::string::npos);
  for (const char* bad :
       {R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})",                      // too short
        R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})",                      // outside
        R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})",                      // backwards
        R"({"dtype":"F99","shape":[1],"data_offsets":[0,4]})",                      // unknown
        R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",                     // negative
        R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]})",  // overflows
        R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})",                        // no list
        R"({"dtype":"F32","shape":[1]})", R"(7)", R"({"dtype":"U8","shape":[2],"data_offsets":[1,3]})",
        R"({"dtype":"U8","shape":[3],"data_offsets":[0,3]})"}) {  // one byte left
    EXPECT_NE(refusal(with_length(tensor(bad), "data")).find("at byte"), std::string::npos) << bad;
  }
  EXPECT_EQ(refusal(with_length(tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})"), "data")), "");
}

TEST(Safetensors, AnotherSizeOrHashThanWrittenIsRefused) {
  const TempDir dir;
  const auto sum = write_safetensors(dir.path() / "x", example().tensors({}));
  const std::string good = bytes_in(dir.path() / "x");
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    dir.write("x", bad);
    EXPECT_THROW(SafetensorsFile(dir.path() / "x", &sum), DataError) << "byte " << at;
  }
  dir.write("x", good.substr(0, good.size() - 1));
  EXPECT_THROW(SafetensorsFile(dir.path() / "x", &sum), DataError);
  dir.write("x", good);
  EXPECT_NO_THROW(SafetensorsFile(dir.path() / "x", &sum));
}

// Whatever is done to a file, reading it ends in a DataError or in tensors that lie inside of it.
TEST(Safetensors, MutatedFilesNeverDoMoreThanBeRefused) {
  const TempDir dir;
  write_safetensors(dir.path() / "x", example().tensors({}), {{"format", "pt"}});
  const std::string good = bytes_in(dir.path() / "x");
  int refused = 0;
  for (std::uint64_t seed = 0; seed < fuzz_seeds(2000); ++seed) {
    std::mt19937_64 random(seed);
    std::string bad = good;
    for (std::uint64_t changes = 1 + random() % 4; changes > 0 && !bad.empty(); --changes) {
      const std::size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = static_cast<char>(random());
          break;
        case 1:
          bad.erase(at, 1 + random() % 9);
          break;
        case 2:
          bad.insert(at, 1 + random() % 9, "0123456789-[]{},\""[random() % 17]);
          break;
        default:
          bad.resize(std::max<std::size_t>(1, at));
          break;
      }
    }
    dir.write("y", bad);
    try {
      const SafetensorsFile file(dir.path() / "y");
      std::size_t bytes = 0;
      for (const TensorView& tensor : file.tensors()) bytes += tensor.data.size();
      EXPECT_LE(bytes, bad.size()) << "seed " << seed;
      StateArchive().add(file.tensors());
    } catch (const DataError&) {
      ++refused;
    } catch (const Error&) {  // a name twice: nlohmann keeps one, so this cannot be
      ADD_FAILURE() << "seed " << seed;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace slipstream::test
