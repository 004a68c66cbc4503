// SPDX-License-Identifier: Apache-2.0
#include "lab/lab.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "slipstream/base/clock.h"
#include "slipstream/base/error.h"

namespace slipstream {
namespace {

constexpr int kPort = 29500;
constexpr int kPatienceMs = 20'000;  // before a test that hangs counts as failed

// Runs f in a child and returns its pid; the child's exit code is what f returns, 99 if f throws.
pid_t in_child(const std::function<int()>& f) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    _exit(f());
  } catch (const std::exception& error) {
    dprintf(STDERR_FILENO, "child: %s\n", error.what());
    _exit(99);
  }
}

int exit_code(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

sockaddr_in at(const std::string& address) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(kPort);
  inet_pton(AF_INET, address.c_str(), &where.sin_addr);
  return where;
}

int listen_at(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in where = at(address);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 || listen(fd, 8) != 0) return -1;
  return fd;
}

bool readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, kPatienceMs) == 1;
}

// Connects and sends one byte; true if it came back.
bool echoes(const std::string& address, char byte) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in where = at(address);
  char back = 0;
  return connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0 && write(fd, &byte, 1) == 1 &&
         readable(fd) && read(fd, &back, 1) == 1 && back == byte;
}

// Accepts one connection and sends its first byte back.
bool answers(int listener) {
  if (!readable(listener)) return false;
  const int fd = accept(listener, nullptr, nullptr);
  char byte = 0;
  return fd >= 0 && readable(fd) && read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1;
}

// The kernel's own word, independent of the code under test.
bool may_build_a_lab() {
  return exit_code(in_child([] { return unshare(CLONE_NEWNET); })) == 0;
}

// Labs need root. Without it these tests check that the refusal says so, and nothing else.
void with_lab(const std::string& spec, int hosts, const std::function<void(const Lab&)>& claims) {
  if (may_build_a_lab()) {
    const Lab lab(LabSpec::parse(spec), hosts);
    claims(lab);
    return;
  }
  try {
    const Lab lab(LabSpec::parse(spec), hosts);
    ADD_FAILURE() << "a lab without the right to make one";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("root"), std::string::npos) << error.what();
  }
}

// Host 1 connects to host 0 and gets a byte back: two round trips, which take at least so long.
void expect_echo(const Lab& lab, double at_least_seconds) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t server = in_child([&] {
    lab.enter(0);
    const int listener = listen_at(lab.address(0));
    if (listener < 0 || write(ready[1], "r", 1) != 1) return 1;
    return answers(listener) ? 0 : 2;
  });
  ASSERT_TRUE(readable(ready[0]));
  const pid_t client = in_child([&] {
    lab.enter(1);
    const SteadyClock clock;
    const double start = clock.now();
    if (!echoes(lab.address(0), 'x')) return 1;
    return clock.now() - start >= at_least_seconds ? 0 : 2;
  });
  EXPECT_EQ(exit_code(client), 0);
  EXPECT_EQ(exit_code(server), 0);
  close(ready[0]);
  close(ready[1]);
}

// A cable from the namespace this thread is in to the lab's hub. The kernel removes both ends with either namespace: as
// long as "probe" is here, the hub exists.
void tie_to_hub(const Lab& lab) {
  const NetNamespace here = NetNamespace::current();
  lab.at_hub([&] {
    NetNamespace::current().batch("ip", "link add tie type veth peer name probe netns " + here.path() + "\n");
  });
}

// The kernel takes namespaces apart in the background.
bool probe_vanishes() {
  for (int waited_ms = 0; waited_ms < kPatienceMs; waited_ms += 20) {
    if (if_nametoindex("probe") == 0) return true;
    poll(nullptr, 0, 20);
  }
  return false;
}

TEST(LabSpec, ParsesRateDelayAndLoss) {
  EXPECT_EQ(LabSpec::parse("none").rate, "none");
  EXPECT_EQ(LabSpec::parse("100mbit").rate, "100mbit");
  EXPECT_EQ(LabSpec::parse("100mbit").delay_ms, 0);
  EXPECT_EQ(LabSpec::parse("1gbit,20ms").rate, "1gbit");
  EXPECT_EQ(LabSpec::parse("1gbit,20ms").delay_ms, 20);
  EXPECT_EQ(LabSpec::parse("none,0.5ms").delay_ms, 0.5);
  EXPECT_EQ(LabSpec::parse("none,0.5ms").loss_percent, 0);
  EXPECT_EQ(LabSpec::parse("1gbit,5ms,0.1%").rate, "1gbit");
  EXPECT_EQ(LabSpec::parse("1gbit,5ms,0.1%").delay_ms, 5);
  EXPECT_EQ(LabSpec::parse("1gbit,5ms,0.1%").loss_percent, 0.1);
  EXPECT_EQ(LabSpec::parse("1gbit,0ms,2%").loss_percent, 2);
  EXPECT_TRUE(LabSpec::parse("1gbit,0ms,2%").has_distance());
  EXPECT_FALSE(LabSpec::parse("1gbit,0ms,0%").has_distance());
  EXPECT_EQ(LabSpec::parse("2.5gbit").rate, "2.5gbit");
  EXPECT_EQ(LabSpec::parse("2.5gbit").bits_per_second(), 2.5e9);
  EXPECT_EQ(LabSpec::parse("100mbit,1ms").bits_per_second(), 1e8);
  EXPECT_EQ(LabSpec::parse("500kbit").bits_per_second(), 5e5);
  EXPECT_EQ(LabSpec::parse("none").bits_per_second(), std::numeric_limits<double>::infinity());
}

TEST(LabSpec, RejectsEverythingElseWithExamples) {
  for (const char* text : {"",
                           "fast",
                           "100",
                           "100mbps",
                           "mbit",
                           "-1mbit",
                           "0mbit",
                           "1e3mbit",
                           "infmbit",
                           "100 mbit",
                           "100mbit,",
                           "100mbit,20",
                           "100mbit,20s",
                           "100mbit,-1ms",
                           "100mbit,20ms,3",
                           ",20ms",
                           "100mbit,99999ms",
                           "100mbit; true",
                           "100mbit,20ms,",
                           "100mbit,20ms,100%",
                           "100mbit,20ms,-1%",
                           "100mbit,1%",
                           "100mbit,20ms,1%,",
                           "100mbit,20ms,1%,7",
                           "100mbit,,1%"}) {
    try {
      LabSpec::parse(text);
      ADD_FAILURE() << "accepted `" << text << "`";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("1gbit,20ms"), std::string::npos) << error.what();
    }
  }
}

TEST(Lab, WithoutRootSaysThatItNeedsRoot) {
  const pid_t child = in_child([] {
    if (geteuid() == 0 && setuid(65534) != 0) return 1;
    int refusals = 0;
    try {
      Lab::require_root();
    } catch (const ConfigError& error) {
      refusals += std::string(error.what()).find("root") != std::string::npos;
    }
    try {
      const Lab lab(LabSpec{}, 2);
    } catch (const ConfigError& error) {
      refusals += std::string(error.what()).find("root") != std::string::npos;
    }
    return refusals == 2 ? 0 : 2;
  });
  EXPECT_EQ(exit_code(child), 0);
}

TEST(Lab, RejectsHostCountsItHasNoAddressesFor) {
  EXPECT_THROW(Lab(LabSpec{}, 0), ConfigError);
  EXPECT_THROW(Lab(LabSpec{}, Lab::kMaxHosts + 1), ConfigError);
}

TEST(Lab, HostsReachEachOther) {
  with_lab("100mbit", 2, [](const Lab& lab) { expect_echo(lab, 0); });
}

TEST(Lab, ASocketOpenedAtTheHubServesEveryHost) {
  with_lab("none", 3, [](const Lab& lab) {
    int listener = -1;
    lab.at_hub([&] { listener = listen_at(lab.hub_address()); });
    ASSERT_GE(listener, 0);
    for (int host = 0; host < lab.hosts(); ++host) {
      const pid_t client = in_child([&] {
        lab.enter(host);
        return echoes(lab.hub_address(), static_cast<char>('a' + host)) ? 0 : 1;
      });
      EXPECT_TRUE(answers(listener));
      EXPECT_EQ(exit_code(client), 0);
    }
    close(listener);
  });
}

TEST(Lab, BothEndsOfACableCarryTheDeclaredRate) {
  with_lab("100mbit", 2, [](const Lab& lab) {
    for (int host = 0; host < 2; ++host) {
      const std::string queues = lab.output_at(host, "tc", "qdisc show dev e0");
      EXPECT_NE(queues.find("tbf"), std::string::npos) << queues;
      EXPECT_NE(queues.find("rate 100Mbit"), std::string::npos) << queues;
    }
    std::string ports;
    lab.at_hub([&] { ports = NetNamespace::current().output("tc", "qdisc show"); });
    for (const char* port : {"dev p0 root", "dev p1 root"}) {
      const std::size_t line = ports.find(port);
      ASSERT_NE(line, std::string::npos) << ports;
      EXPECT_NE(ports.substr(line, 60).find("rate 100Mbit"), std::string::npos) << ports;
    }
  });
}

TEST(Lab, RateNoneShapesNothing) {
  with_lab("none", 1, [](const Lab& lab) {
    EXPECT_EQ(lab.output_at(0, "tc", "qdisc show dev e0").find("tbf"), std::string::npos);
  });
}

// A larger bucket lets whole messages pass an idle cable at memory speed; one of less than two frames, none.
TEST(Lab, BucketsHoldAMillisecondOfTheRateOrTwoFrames) {
  for (const auto& [rate, burst] : {std::pair{"100mbit", "burst 12500b"}, {"10mbit", "burst 3200b"}}) {
    with_lab(rate, 1, [&](const Lab& lab) {
      const std::string at_host = lab.output_at(0, "tc", "qdisc show dev e0");
      EXPECT_NE(at_host.find(burst), std::string::npos) << at_host;
      std::string at_port;
      lab.at_hub([&] { at_port = NetNamespace::current().output("tc", "qdisc show dev p0"); });
      EXPECT_NE(at_port.find(burst), std::string::npos) << at_port;
    });
  }
}

TEST(Lab, ARoundTripTakesAtLeastTwiceTheDelay) {
  with_lab("100mbit,20ms", 2, [](const Lab& lab) {
    expect_echo(lab, 2 * 2 * 0.020);
    const std::string queues = lab.output_at(1, "tc", "qdisc show dev e0");
    EXPECT_NE(queues.find("rate 100Mbit"), std::string::npos) << queues;
  });
}

// That none of 200 datagrams is lost has a probability of 1e-9. TCP sends again what is lost, and its last byte comes
// after the datagrams: nothing overtakes.
TEST(Lab, DatagramsGetLostAndTcpSendsAgain) {
  with_lab("none,1ms,10%", 2, [](const Lab& lab) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t server = in_child([&] {
      lab.enter(0);
      const int listener = listen_at(lab.address(0));
      const int datagrams = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      const sockaddr_in where = at(lab.address(0));
      if (bind(datagrams, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0) return 1;
      if (listener < 0 || write(ready[1], "r", 1) != 1 || !answers(listener)) return 2;
      int arrived = 0;
      for (char byte = 0; recv(datagrams, &byte, 1, MSG_DONTWAIT) == 1;) ++arrived;
      return arrived > 100 && arrived < 200 ? 0 : 3;
    });
    ASSERT_TRUE(readable(ready[0]));
    const pid_t client = in_child([&] {
      lab.enter(1);
      const int datagrams = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      const sockaddr_in where = at(lab.address(0));
      for (int i = 0; i < 200; ++i) {
        if (sendto(datagrams, "x", 1, 0, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 1) return 1;
      }
      return echoes(lab.address(0), 'x') ? 0 : 2;
    });
    EXPECT_EQ(exit_code(client), 0);
    EXPECT_EQ(exit_code(server), 0);
    close(ready[0]);
    close(ready[1]);
  });
}

TEST(Lab, HostsFarApartReachTheHub) {
  with_lab("100mbit,20ms,0.1%", 3, [](const Lab& lab) {
    int listener = -1;
    lab.at_hub([&] { listener = listen_at(lab.hub_address()); });
    ASSERT_GE(listener, 0);
    const pid_t client = in_child([&] {
      lab.enter(2);
      return echoes(lab.hub_address(), 'x') ? 0 : 1;
    });
    EXPECT_TRUE(answers(listener));
    EXPECT_EQ(exit_code(client), 0);
    close(listener);
  });
}

// 1 Gb/s over a round trip of 50 ms: 6.25 MB, of which a receiver's window gets half.
TEST(Lab, TcpOfHostsFarApartMayHaveABandwidthDelayProductUnderWay) {
  with_lab("none,25ms", 1, [](const Lab& lab) {
    for (const char* name : {"tcp_rmem", "tcp_wmem"}) {
      std::istringstream numbers(lab.output_at(0, "cat", std::string("/proc/sys/net/ipv4/") + name));
      long least = 0, first = 0, most = 0;
      numbers >> least >> first >> most;
      EXPECT_GE(most, 2 * 6'250'000) << name;
    }
  });
}

TEST(Lab, HoldsSixtyFourHosts) {
  with_lab("1gbit", 64, [](const Lab& lab) {
    int listener = -1;
    lab.at_hub([&] { listener = listen_at(lab.hub_address()); });
    const pid_t client = in_child([&] {
      lab.enter(63);
      return echoes(lab.hub_address(), 'z') ? 0 : 1;
    });
    EXPECT_TRUE(answers(listener));
    EXPECT_EQ(exit_code(client), 0);
    EXPECT_EQ(lab.address(63), "10.88.0.64");
    close(listener);
  });
}

// With cables, and with what makes hosts be far apart.
constexpr const char* kKinds[] = {"100mbit", "100mbit,5ms"};

TEST(Lab, IsGoneAfterItsDestruction) {
  if (!may_build_a_lab()) {
    EXPECT_THROW(Lab::require_root(), ConfigError);
    return;
  }
  for (const char* spec : kKinds) {
    NetNamespace().visit([&] {
      {
        const Lab lab(LabSpec::parse(spec), 2);
        tie_to_hub(lab);
        EXPECT_NE(if_nametoindex("probe"), 0U);
      }
      EXPECT_TRUE(probe_vanishes()) << spec;
      EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << spec << ": no process is left";
    });
  }
}

TEST(Lab, TwoOfThemDoNotMeetAndEndInAnyOrder) {
  with_lab("none,1ms", 2, [](const Lab& first) {
    {
      std::optional<Lab> second(std::in_place, LabSpec::parse("none,1ms"), 2);
      const Lab third(LabSpec::parse("none,1ms"), 2);
      second.reset();
      expect_echo(third, 0);
    }
    expect_echo(first, 0);
  });
}

TEST(Lab, IsGoneAfterItsOwnerWasKilled) {
  if (!may_build_a_lab()) {
    EXPECT_THROW(Lab::require_root(), ConfigError);
    return;
  }
  for (const char* spec : kKinds) {
    NetNamespace().visit([&] {
      int ready[2];
      ASSERT_EQ(pipe(ready), 0);
      const pid_t owner = in_child([&] {
        const Lab lab(LabSpec::parse(spec), 2);
        tie_to_hub(lab);
        if (write(ready[1], "r", 1) != 1) return 1;
        for (;;) pause();
      });
      close(ready[1]);
      char byte = 0;
      EXPECT_TRUE(readable(ready[0]));
      EXPECT_EQ(read(ready[0], &byte, 1), 1);
      EXPECT_NE(if_nametoindex("probe"), 0U);
      kill(owner, SIGKILL);
      EXPECT_EQ(exit_code(owner), 128 + SIGKILL);
      EXPECT_TRUE(readable(ready[0])) << spec;
      EXPECT_EQ(read(ready[0], &byte, 1), 0) << spec << ": the pipe ends when the last process that holds it is gone";
      EXPECT_TRUE(probe_vanishes()) << spec;
      close(ready[0]);
    });
  }
}

}  // namespace
}  // namespace slipstream
