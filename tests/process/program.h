// SPDX-License-Identifier: Apache-2.0
//
// Program: a command run as a user runs it, in a process group of its own, with standard output and error kept apart.
//
// Every wait ends: at the deadline the test fails and the whole job is killed. The processes of a job are known by a
// mark in their environment, so that launchers may start groups of their own and none is overlooked. Nothing outlives
// the object.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace slipstream::test {

struct Ended {
  int exit_code = -1;  // 128 + n: by signal n; -1: killed at the deadline
  std::string out, err;
};

using Words = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

class Program {
 public:
  enum class Terminal { kNone, kOwn };  // kOwn: a terminal controls the group, type() is its keyboard

  explicit Program(Words command, const Variables& variables = {}, Terminal terminal = Terminal::kNone)
      : command_(std::move(command)), mark_("SLIPSTREAM_TEST_JOB=" + unique_number()) {
    std::array<int, 2> out{}, err{};
    if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    if (terminal == Terminal::kOwn) {
      keyboard_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
      if (keyboard_ < 0 || grantpt(keyboard_) != 0 || unlockpt(keyboard_) != 0) throw std::runtime_error("no terminal");
    }
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("no process");
    if (pid_ == 0) become(out[1], err[1], variables);
    close(out[1]);
    close(err[1]);
    streams_ = {Stream{out[0], {}}, Stream{err[0], {}}};
    exit_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    if (exit_ < 0) throw std::runtime_error("no pidfd");
  }

  ~Program() {
    kill_all();
    if (!reaped_) waitpid(pid_, nullptr, 0);
    for (const int fd : {streams_[0].fd, streams_[1].fd, exit_, keyboard_}) {
      if (fd >= 0) close(fd);
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const { kill(pid_, signal); }
  void type(const std::string& keys) const {
    ASSERT_EQ(write(keyboard_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  // Until standard error holds the text; false (and a failed test) if the program ends before.
  bool wait_for(const std::string& text) {
    while (streams_[1].text.find(text) == std::string::npos) {
      if (!pump()) {
        ADD_FAILURE() << "ended without saying '" << text << "'; it said:\n" << streams_[1].text;
        return false;
      }
    }
    return true;
  }

  const std::string& said() const { return streams_[1].text; }  // on standard error, so far

  // The result of whichever ends first.
  static Ended first_to_end(Program& a, Program& b) {
    std::array<pollfd, 2> fds{{{a.exit_, POLLIN, 0}, {b.exit_, POLLIN, 0}}};
    poll(fds.data(), fds.size(), a.milliseconds_left());
    return (fds[0].revents != 0 ? a : b).wait();
  }

  // Until the program itself has ended.
  Ended wait() {
    while (pump()) {
    }
    return {exit_code_, streams_[0].text, streams_[1].text};
  }

  // All that run. Zombies do not count: they have no environment any more.
  std::vector<pid_t> processes() const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (pid > 0 && read_proc(pid, "environ").find(mark_ + '\0') != std::string::npos) found.push_back(pid);
    }
    return found;
  }

  // Looks again and again until `holds` does; false at the deadline.
  template <typename Condition>
  bool wait_until(const Condition& holds) const {
    while (!holds()) {
      if (milliseconds_left() == 0) return false;
      poll(nullptr, 0, 5);
    }
    return true;
  }
  bool wait_for_processes(std::size_t count) const {
    return wait_until([&] { return processes().size() == count; });
  }
  bool all_gone() const { return wait_for_processes(0); }

  // The process that this program started with these two words side by side, such as {"--rank", "1"}; never the program
  // itself, which may have been given them, too. A worker has them once it has become its command: it is waited for.
  pid_t find(const std::string& word, const std::string& next) const {
    const std::string wanted = '\0' + word + '\0' + next + '\0';
    pid_t found = 0;
    const bool there = wait_until([&] {
      for (const pid_t pid : processes()) {
        if (pid != pid_ && read_proc(pid, "cmdline").find(wanted) != std::string::npos) found = pid;
      }
      return found != 0;
    });
    EXPECT_TRUE(there) << "no process with " << word << ' ' << next;
    return found;
  }

 private:
  struct Stream {
    int fd = -1;
    std::string text;
  };

  static std::string unique_number() {
    static int count = 0;
    return std::to_string(getpid()) + "." + std::to_string(++count);
  }

  static std::string read_proc(pid_t pid, const char* what) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/" + what, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  [[noreturn]] void become(int out, int err, const Variables& variables) {
    setsid();  // a group, and a session that can have a terminal
    if (keyboard_ >= 0) {
      const int terminal = open(ptsname(keyboard_), O_RDWR);
      ioctl(terminal, TIOCSCTTY, 0);
      dup2(terminal, STDIN_FILENO);
    } else {
      dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    }
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    putenv(mark_.data());
    std::vector<char*> argv;
    for (std::string& word : command_) argv.push_back(word.data());
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    dprintf(STDERR_FILENO, "cannot run %s\n", argv[0]);
    _exit(127);
  }

  // Waits for output or the end; false once the program has ended and all it said is here.
  bool pump() {
    if (reaped_) return false;
    std::array<pollfd, 3> fds{{{streams_[0].fd, POLLIN, 0}, {streams_[1].fd, POLLIN, 0}, {exit_, POLLIN, 0}}};
    if (poll(fds.data(), fds.size(), milliseconds_left()) == 0) {
      ADD_FAILURE() << command_line() << "\nhangs; it is killed. It said:\n" << streams_[0].text << streams_[1].text;
      kill_all();
      waitpid(pid_, nullptr, 0);
      reaped_ = true;
      return false;
    }
    if (fds[0].revents != 0) take(streams_[0]);
    if (fds[1].revents != 0) take(streams_[1]);
    if (fds[2].revents == 0) return true;
    int status = 0;
    waitpid(pid_, &status, 0);
    reaped_ = true;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    for (Stream& stream : streams_) {  // what is left, without waiting for processes that still hold the other end
      for (pollfd more{stream.fd, POLLIN, 0}; stream.fd >= 0 && poll(&more, 1, 0) > 0; more.fd = stream.fd)
        take(stream);
    }
    return false;
  }

  static void take(Stream& stream) {
    std::array<char, 65536> buffer;
    const ssize_t count = read(stream.fd, buffer.data(), buffer.size());
    if (count > 0) {
      stream.text.append(buffer.data(), static_cast<std::size_t>(count));
    } else {
      close(std::exchange(stream.fd, -1));
    }
  }

  int milliseconds_left() const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    return static_cast<int>(std::max<std::int64_t>(0, left.count()));
  }

  void kill_all() const {
    if (!reaped_) kill(pid_, SIGKILL);
    for (const pid_t pid : processes()) kill(pid, SIGKILL);
  }

  std::string command_line() const {
    std::string line;
    for (const std::string& word : command_) line += word + ' ';
    return line;
  }

  static constexpr std::chrono::seconds kDeadline{120};

  Words command_;
  std::string mark_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::now() + kDeadline;
  pid_t pid_ = -1;
  int keyboard_ = -1, exit_ = -1;
  std::array<Stream, 2> streams_;  // standard output, standard error
  bool reaped_ = false;
  int exit_code_ = -1;
};

}  // namespace slipstream::test
