// SPDX-License-Identifier: Apache-2.0
//
// The process and its devices; what it does to frames is tested by frame_switch_test.cc, and that hosts reach each other
// through it by lab_test.cc.
#include "lab/tap_switch.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <signal.h>

#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "slipstream/base/error.h"

namespace slipstream {
namespace {

constexpr DistanceSpec kFar{std::numeric_limits<double>::infinity(), 5, 0};

bool has_interface(const NetNamespace& where) {
  bool found = false;
  where.visit([&] { found = if_nametoindex("e0") != 0; });
  return found;
}

// The kernel's word on which signals a process has blocked.
bool holds_back(pid_t process, int signal) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;) {
    if (word != "SigBlk:") continue;
    status >> word;
    return (std::stoull(word, nullptr, 16) >> (signal - 1) & 1) != 0;
  }
  return false;
}

struct TapSwitchTest : testing::Test {
  void SetUp() override {
    if (!NetNamespace::permitted()) GTEST_SKIP() << "needs root";
    for (int i = 0; i < 3; ++i) hosts.emplace_back();
    hub.emplace();
  }
  std::vector<NetNamespace> hosts;
  std::optional<NetNamespace> hub;
};

TEST_F(TapSwitchTest, GivesEveryHostAndTheHubAnInterfaceAndTakesItAwayAgain) {
  {
    const TapSwitch far(kFar, hosts, *hub);
    for (const NetNamespace& host : hosts) EXPECT_TRUE(has_interface(host));
    EXPECT_TRUE(has_interface(*hub));
  }
  for (const NetNamespace& host : hosts) EXPECT_FALSE(has_interface(host));
  EXPECT_FALSE(has_interface(*hub));
}

TEST_F(TapSwitchTest, DoesNotEndByWhatEndsTheHosts) {
  const TapSwitch far(kFar, hosts, *hub);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    kill(far.process(), number);
    EXPECT_TRUE(holds_back(far.process(), number)) << number;
  }
}

TEST_F(TapSwitchTest, SaysWhatIsInTheWay) {
  hosts[1].visit([] { NetNamespace::current().batch("ip", "link add e0 type bridge\n"); });
  EXPECT_THROW(TapSwitch(kFar, hosts, *hub), ConfigError);
  EXPECT_FALSE(has_interface(hosts[0])) << "what was made before is gone";
}

}  // namespace
}  // namespace slipstream
