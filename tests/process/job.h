// SPDX-License-Identifier: Apache-2.0
//
// What the process tests share: the slipstream program, a small data set that makes jobs short, free ports, and a look
// into the results.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "process/program.h"
#include "task/files.h"

namespace slipstream::test {

template <typename T>
std::vector<T> operator+(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The program that was built with this test: it lies one folder above.
inline Words slipstream(const Words& arguments) {
  static const std::filesystem::path kTest = std::filesystem::read_symlink("/proc/self/exe");
  return Words{(kTest.parent_path().parent_path() / "slipstream").string()} + arguments;
}

inline Ended run(const Words& command, const Variables& variables = {}) { return Program(command, variables).wait(); }

// 256 training and 32 test images of 8 x 8 pixels in 10 classes; each class has its own pattern, each image some noise.
inline void write_images(const TempDir& where, std::uint8_t last_label = 9) {
  for (const auto& [name, count] : {std::pair{"train", 256U}, std::pair{"t10k", 32U}}) {
    std::string pixels, labels;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t label = i + 1 == count ? last_label : i % 10;
      labels.push_back(static_cast<char>(label));
      for (std::uint32_t p = 0; p < 64; ++p) {
        const std::uint32_t noise = (i * 2654435761U + p * 40503U) >> 7 & 63;
        pixels.push_back(static_cast<char>((p * (label + 3) % 11 * 17) + noise));
      }
    }
    where.write(std::string(name) + "-images-idx3-ubyte", idx_images(count, 8, 8, pixels));
    where.write(std::string(name) + "-labels-idx1-ubyte", idx_labels(count, labels));
  }
}

// A fresh directory with the small data set, and the flags of a short job on it.
class Job : public testing::Test {
 protected:
  Job() { write_images(files_); }

  std::string path(const std::string& name) const { return (files_.path() / name).string(); }
  Words train(const Words& flags) const {
    return slipstream(
        Words{"train", "--task", "images", "--data", files_.path().string(), "--model", "mlp", "--batch", "16"} +
        flags);
  }
  // Never ends by itself within the deadline of a test.
  Words endless(const Words& flags) const { return train(Words{"--steps", "100000000"} + flags); }

  TempDir files_;
};

constexpr const char* kTraining = "training mlp on";  // said by rank 0 once all ranks are connected and in their loop

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good()) << "cannot read " << path;
  return text.str();
}

inline nlohmann::json read_json(const std::string& path) {
  const auto json = nlohmann::json::parse(read_text(path), nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << path << " is not JSON";
  return json;
}

// One that has the torch of this build: ctest names it where it is not Debian's.
inline std::string interpreter() {
  const char* named = std::getenv("SLIPSTREAM_TEST_PYTHON");
  return named != nullptr ? named : "/usr/bin/python3";
}
inline Ended python(const std::string& script, const Words& arguments) {
  return run(Words{interpreter(), "-c", script} + arguments);
}

// The largest difference between two models' weights, over all tensors.
inline double largest_difference(const std::string& a, const std::string& b) {
  const Ended ended = python(
      "import sys, torch\n"
      "a, b = torch.load(sys.argv[1]), torch.load(sys.argv[2])\n"
      "assert list(a) == list(b) and len(a) > 0\n"
      "print(max((a[k] - b[k]).abs().max().item() for k in a))\n",
      {a, b});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return ended.exit_code == 0 ? std::stod(ended.out) : 1e30;
}

// A TCP socket that listens on a port of its own choice for as long as it lives.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    socklen_t length = sizeof any;
    if (bind(fd_, reinterpret_cast<sockaddr*>(&any), length) != 0 || listen(fd_, 1) != 0 ||
        getsockname(fd_, reinterpret_cast<sockaddr*>(&any), &length) != 0) {
      throw std::runtime_error("no port to listen on");
    }
    port_ = ntohs(any.sin_port);
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::string port() const { return std::to_string(port_); }

 private:
  int fd_;
  int port_ = 0;
};

inline std::string free_port() { return Listener().port(); }

inline Words by_hand(int rank, int size, const std::string& port) {
  return {"--rank",        std::to_string(rank), "--world-size",  std::to_string(size),
          "--master-addr", "127.0.0.1",          "--master-port", port};
}

// What torchrun tells its workers.
inline Variables torchrun_variables(int rank, int size, const std::string& port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", port}};
}

inline void expect_words(const std::string& text, const Words& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in:\n" << text;
}

inline void expect_failure(const Ended& ended, int exit_code, const Words& words) {
  EXPECT_EQ(ended.exit_code, exit_code) << ended.out << ended.err;
  expect_words(ended.err, words);
}

}  // namespace slipstream::test
