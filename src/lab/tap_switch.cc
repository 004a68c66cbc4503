// SPDX-License-Identifier: Apache-2.0
#include "lab/tap_switch.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "slipstream/base/error.h"

namespace slipstream {
namespace {

using Nanoseconds = FrameSwitch::Nanoseconds;
constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr int kFramesInARow = 256;  // from one port, before other ports and due frames have their turn
// The shortest time between rounds. Waking up costs more than carrying a frame: with rounds this long, busy ports are
// served several frames at a time. Adds at most this much to the delay, at either end of the air.
constexpr Nanoseconds kRound = 100'000;

Nanoseconds monotonic_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

// The devices' descriptors, one per port; closing them removes the interfaces once no process holds them any more.
class Taps {
 public:
  Taps() = default;
  ~Taps() {
    for (const int fd : fds_) close(fd);
  }
  Taps(const Taps&) = delete;
  Taps& operator=(const Taps&) = delete;

  const std::vector<int>& fds() const { return fds_; }
  // Makes e0 in the namespace this thread is in.
  void add() {
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
      fail<ConfigError>(
          "a lab with a delay needs /dev/net/tun on this kernel, which has no netem: {}; try `modprobe tun` (in a "
          "container: --device /dev/net/tun), or leave out the delay",
          std::strerror(errno));
    }
    fds_.push_back(fd);
    ifreq request{};
    std::strcpy(request.ifr_name, "e0");
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    if (ioctl(fd, TUNSETIFF, &request) != 0) {
      fail<ConfigError>("the kernel refused a TAP device for the lab: {}; leave out the delay", std::strerror(errno));
    }
  }

 private:
  std::vector<int> fds_;
};

void sleep_until(Nanoseconds when) {
  const timespec then{.tv_sec = when / kSecond, .tv_nsec = when % kSecond};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, nullptr);
}

void wait_for_frames(std::vector<pollfd>& ports, Nanoseconds until) {
  if (until == FrameSwitch::kNever) {
    poll(ports.data(), ports.size(), -1);
    return;
  }
  const Nanoseconds left = std::max<Nanoseconds>(0, until - monotonic_now());
  const timespec patience{.tv_sec = left / kSecond, .tv_nsec = left % kSecond};
  ppoll(ports.data(), ports.size(), &patience, nullptr);
}

[[noreturn]] void run_switch(const DistanceSpec& spec, const std::vector<int>& taps) {
  const auto write_frame = [&taps](int port, std::span<const std::byte> frame) {
    // Refused if the interface is down or the host has no memory left: then the frame is lost, as on any network.
    [[maybe_unused]] const ssize_t written = write(taps[static_cast<std::size_t>(port)], frame.data(), frame.size());
  };
  FrameSwitch frames(spec, static_cast<int>(taps.size()) - 1, write_frame);
  std::vector<pollfd> ports;
  for (const int fd : taps) ports.push_back({fd, POLLIN, 0});
  std::array<std::byte, 65'536> frame;
  for (Nanoseconds next_due = FrameSwitch::kNever;;) {
    wait_for_frames(ports, next_due);
    const Nanoseconds round_began = monotonic_now();
    for (std::size_t port = 0; port < ports.size(); ++port) {
      if ((ports[port].revents & POLLERR) != 0) ports[port].fd = -1;  // somebody removed the interface
      if ((ports[port].revents & POLLIN) == 0) continue;
      for (int i = 0; i < kFramesInARow; ++i) {
        const ssize_t size = read(ports[port].fd, frame.data(), frame.size());
        if (size <= 0) break;
        frames.accept(static_cast<int>(port), std::span(frame).first(static_cast<std::size_t>(size)), monotonic_now());
      }
    }
    next_due = frames.run_until(monotonic_now());
    sleep_until(round_began + kRound);
  }
}

// Runs in the child.
[[noreturn]] void become_switch(const DistanceSpec& spec, const std::vector<int>& taps, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent died before the call above
  prctl(PR_SET_NAME, "lab-switch");
  const sched_param lowest_of_real_time{.sched_priority = 1};
  sched_setscheduler(0, SCHED_RR, &lowest_of_real_time);
  try {
    run_switch(spec, taps);
  } catch (const std::exception& error) {
    dprintf(STDERR_FILENO, "slipstream: the lab's switch failed, its hosts cannot reach each other any more: %s\n",
            error.what());
    _exit(1);
  }
}

}  // namespace

TapSwitch::TapSwitch(const DistanceSpec& spec, const std::vector<NetNamespace>& hosts, const NetNamespace& hub) {
  Taps taps;
  for (const NetNamespace& host : hosts) host.visit([&] { taps.add(); });
  hub.visit([&] { taps.add(); });
  const pid_t self = getpid();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the child keeps this mask: from the start, only SIGKILL ends it
  process_ = fork();
  if (process_ == 0) become_switch(spec, taps.fds(), self);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (process_ < 0)
    fail<ConfigError>("cannot start the lab's switch: {}; is `ulimit -u` reached?", std::strerror(errno));
}

TapSwitch::~TapSwitch() {
  kill(process_, SIGKILL);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace slipstream
