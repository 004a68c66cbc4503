// SPDX-License-Identifier: Apache-2.0
#include "lab/net_namespace.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "slipstream/base/error.h"

namespace slipstream {
namespace {

// The kernel's number of the namespace that this thread is in.
ino_t here() {
  struct stat info {};
  EXPECT_EQ(stat("/proc/thread-self/ns/net", &info), 0);
  return info.st_ino;
}

// What the error of f() says; empty if there was none.
template <typename F>
std::string complaint(F f) {
  try {
    f();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// Without the right to make one, the claims reduce to: the refusal says so.
template <typename F>
void with_namespace(F claims) {
  if (NetNamespace::permitted()) {
    claims(NetNamespace());
  } else {
    EXPECT_NE(complaint([] { NetNamespace(); }).find("root"), std::string::npos);
  }
}

TEST(NetNamespace, MakingOneLeavesTheThreadWhereItWas) {
  const ino_t home = here();
  with_namespace([&](const NetNamespace&) { EXPECT_EQ(here(), home); });
  EXPECT_EQ(here(), home);
}

TEST(NetNamespace, AVisitComesBackAfterAnException) {
  const ino_t home = here();
  with_namespace([&](const NetNamespace& made) {
    ino_t inside = home;
    EXPECT_THROW(made.visit([&] {
      inside = here();
      throw std::logic_error("on the way");
    }),
                 std::logic_error);
    EXPECT_NE(inside, home);
    EXPECT_EQ(here(), home);
  });
}

TEST(NetNamespace, CommandsRunInsideInOrder) {
  with_namespace([](const NetNamespace& made) {
    made.batch("ip", "link add br7 type bridge\naddr add 10.1.2.3/24 dev br7\n");
    const std::string inside = made.output("ip", "addr show dev br7");
    EXPECT_NE(inside.find("10.1.2.3/24"), std::string::npos) << inside;
    EXPECT_NE(complaint([] { NetNamespace::current().output("ip", "addr show dev br7"); }), "");
  });
}

TEST(NetNamespace, AFailedBatchNamesTheCommandAndWhatItPrinted) {
  with_namespace([](const NetNamespace& made) {
    const std::string text = complaint([&] { made.batch("ip", "link set lo up\nlink set e9 up\nlink set lo down\n"); });
    EXPECT_NE(text.find("`ip link set e9 up`"), std::string::npos) << text;
    EXPECT_NE(text.find("Cannot find device"), std::string::npos) << text;
  });
}

TEST(NetNamespace, AMissingToolNamesItsPackage) {
  with_namespace([](const NetNamespace& made) {
    const std::string text = complaint([&] { made.output("no-such-tool", "addr"); });
    EXPECT_NE(text.find("iproute2"), std::string::npos) << text;
  });
}

TEST(NetNamespace, MovingHandsTheNamespaceOver) {
  with_namespace([](NetNamespace made) {
    ino_t before = 0;
    ino_t after = 0;
    made.visit([&] { before = here(); });
    const NetNamespace moved = std::move(made);
    moved.visit([&] { after = here(); });
    EXPECT_EQ(before, after);
  });
}

}  // namespace
}  // namespace slipstream
