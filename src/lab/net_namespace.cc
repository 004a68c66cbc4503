// SPDX-License-Identifier: Apache-2.0
#include "lab/net_namespace.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>
#include <vector>

#include "slipstream/base/error.h"

namespace slipstream {
namespace {

constexpr int kNoSuchTool = 127;
constexpr int kCouldNotEnter = 126;

int open_current() {
  const int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    fail<ConfigError>("cannot open /proc/thread-self/ns/net: {}; is /proc mounted, and `ulimit -n` high enough?",
                      std::strerror(errno));
  }
  return fd;
}

// Brings the thread back when the scope ends. If that fails, the program ends, because enter() throws out of this
// destructor: a thread lost in another namespace cannot go on.
struct ComesHome {
  const NetNamespace& home;
  ~ComesHome() { home.enter(); }
};

// A file in memory: unlike a pipe, it needs no reader while it is written.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& text) : fd_(memfd_create("slipstream-lab", MFD_CLOEXEC)) {
    if (fd_ < 0) fail<ConfigError>("cannot make a file in memory: {}; try a higher `ulimit -n`", std::strerror(errno));
    const auto size = static_cast<ssize_t>(text.size());
    check(pwrite(fd_, text.data(), text.size(), 0) == size, "short write of {} bytes to a file in memory", size);
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }
  std::string text() const {
    std::string all(static_cast<std::size_t>(lseek(fd_, 0, SEEK_END)), '\0');
    const auto size = static_cast<ssize_t>(all.size());
    check(pread(fd_, all.data(), all.size(), 0) == size, "short read of {} bytes from a file in memory", size);
    return all;
  }

 private:
  int fd_;
};

struct Outcome {
  int exit_code;
  std::string printed;
};

Outcome run(const NetNamespace& where, std::vector<std::string> words, const std::string& input) {
  const MemoryFile in(input);
  const MemoryFile out("");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string administrators = "/usr/sbin/" + words[0];  // often not on the PATH after `su`

  const pid_t child = fork();
  if (child < 0) fail<ConfigError>("cannot start `{}`: {}; is `ulimit -u` reached?", words[0], std::strerror(errno));
  if (child == 0) {
    try {
      where.enter();
    } catch (...) {
      _exit(kCouldNotEnter);
    }
    dup2(in.fd(), STDIN_FILENO);
    dup2(out.fd(), STDOUT_FILENO);
    dup2(out.fd(), STDERR_FILENO);
    execvp(argv[0], argv.data());
    execv(administrators.c_str(), argv.data());
    _exit(kNoSuchTool);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    check(errno == EINTR, "lost the process of `{}`: {}", words[0], std::strerror(errno));
  }
  const int exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (exit_code == kNoSuchTool) {
    fail<ConfigError>("the network lab needs the command `{}`: install Debian's package iproute2", words[0]);
  }
  return {exit_code, out.text()};
}

// iproute2 ends a failed batch with "Command failed -:LINE".
std::string failed_command(const std::string& commands, const std::string& printed) {
  const std::string mark = "Command failed -:";
  const std::size_t at = printed.rfind(mark);
  if (at == std::string::npos) return "-batch";
  std::istringstream lines(commands);
  std::string line;
  for (int n = std::atoi(printed.c_str() + at + mark.size()); n > 0; --n) std::getline(lines, line);
  return line;
}

[[noreturn]] void report(const std::string& tool, const std::string& command, const Outcome& outcome) {
  fail<ConfigError>("the network lab could not be built: `{} {}` ended with code {} and printed:\n{}", tool, command,
                    outcome.exit_code, outcome.printed);
}

}  // namespace

NetNamespace::NetNamespace() : fd_(-1) {
  const NetNamespace home = current();
  if (unshare(CLONE_NEWNET) != 0) {
    fail<ConfigError>(
        "the kernel refused a new network namespace: {}; the network lab needs root with CAP_NET_ADMIN "
        "and CAP_SYS_ADMIN (in a container: start it with --privileged)",
        std::strerror(errno));
  }
  const ComesHome guard{home};
  fd_ = open_current();
}

NetNamespace NetNamespace::current() { return NetNamespace(open_current()); }

NetNamespace NetNamespace::of_process(int pid) {
  const std::string path = fmt::format("/proc/{}/ns/net", pid);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail<ConfigError>("cannot open the network of process {} ({}): {}", pid, path, std::strerror(errno));
  return NetNamespace(fd);
}

bool NetNamespace::permitted() noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  constexpr unsigned kNeeded = (1U << CAP_NET_ADMIN) | (1U << CAP_SYS_ADMIN);
  return (data[0].effective & kNeeded) == kNeeded;
}

NetNamespace::~NetNamespace() {
  if (fd_ >= 0) close(fd_);
}

NetNamespace::NetNamespace(NetNamespace&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

void NetNamespace::enter() const {
  if (setns(fd_, CLONE_NEWNET) == 0) return;
  fail<ConfigError>("cannot enter a network namespace: {}; this needs root (CAP_SYS_ADMIN)", std::strerror(errno));
}

void NetNamespace::visit(const std::function<void()>& f) const {
  const NetNamespace home = current();
  enter();
  const ComesHome guard{home};
  f();
}

std::string NetNamespace::path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_); }

void NetNamespace::batch(const std::string& tool, const std::string& commands) const {
  const Outcome outcome = run(*this, {tool, "-batch", "-"}, commands);
  if (outcome.exit_code != 0) report(tool, failed_command(commands, outcome.printed), outcome);
}

std::string NetNamespace::output(const std::string& tool, const std::string& command) const {
  std::vector<std::string> words{tool};
  std::istringstream text(command);
  for (std::string word; text >> word;) words.push_back(word);
  const Outcome outcome = run(*this, words, "");
  if (outcome.exit_code != 0) report(tool, command, outcome);
  return outcome.printed;
}

}  // namespace slipstream
