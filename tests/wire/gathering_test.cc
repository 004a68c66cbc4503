// SPDX-License-Identifier: Apache-2.0
#include "wire/gathering.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace slipstream {
namespace {

constexpr double kPatience = 60;

// A process at the rendezvous: its address is its identity.
struct Process {
  int seat;
  std::uint32_t epoch = 0;
  int rank = 0;
  JoinText text(int seats = 3) const {
    return {.seat = seat, .seats = seats, .epoch = epoch, .rank = rank, .holds = epoch > 0, .address = {"h", 1}};
  }
};

std::vector<int> seats_of(const Roster& roster) {
  std::vector<int> seats;
  for (const auto& rank : roster.ranks) seats.push_back(rank.seat);
  return seats;
}

// All of these in a group; those lost without a word, the others back after a goodbye.
void come_back(Gathering& g, std::vector<Process*> back, std::vector<Process*> lost, double now) {
  for (Process* one : lost) g.ended(one, now);
  for (Process* one : back) {
    g.said_goodbye(one);
    g.ended(one, now);
  }
}

TEST(Gathering, AJobThatIsNotElasticHasOneGroupOfAllSeats) {
  Gathering g(3, 3, {}, kPatience, 0);
  Process a{0}, b{1}, c{2};
  EXPECT_EQ(g.join(&b, b.text(), 0), "");
  EXPECT_EQ(g.join(&a, a.text(), 0), "");
  EXPECT_FALSE(g.form(1));
  EXPECT_EQ(g.missing(), std::vector<int>{2});
  EXPECT_EQ(g.join(&c, c.text(), 0), "");
  const auto roster = g.form(2);
  ASSERT_TRUE(roster);
  EXPECT_EQ(roster->epoch, 1U);
  EXPECT_EQ(seats_of(*roster), (std::vector<int>{0, 1, 2}));
  come_back(g, {&a, &b}, {&c}, 3);
  EXPECT_EQ(g.join(&a, a.text(), 0), "");
  EXPECT_EQ(g.join(&b, b.text(), 0), "");
  EXPECT_FALSE(g.form(1000)) << "there is no second one";
}

TEST(Gathering, WhoeverClaimsATakenSeatOrAnotherNumberOfThemIsToldWhy) {
  Gathering g(3, 3, {}, kPatience, 0);
  Process a{0}, again{0}, b{1};
  EXPECT_EQ(g.join(&a, a.text(), 0), "");
  EXPECT_NE(g.join(&again, again.text(), 0).find("two processes claim rank 0"), std::string::npos);
  EXPECT_NE(g.join(&b, b.text(4), 0).find("was told of 4 processes, the rendezvous of 3"), std::string::npos);
  EXPECT_EQ(g.seat_of(&again), -1);
}

TEST(Gathering, SurvivorsFormTheNextGroupWithoutWaitingForTheLost) {
  Gathering g(3, 3, {1, 3}, kPatience, 0);
  Process a{0}, b{1}, c{2};
  for (Process* one : {&a, &b, &c}) g.join(one, one->text(), 0);
  ASSERT_TRUE(g.form(0));
  g.ended(&a, 1);  // lost without a word
  Process b2{1, 1, 1}, c2{2, 1, 2};
  EXPECT_EQ(g.join(&c2, c2.text(), 0), "") << "back before its old connection has ended";
  EXPECT_FALSE(g.form(1)) << "others are still at work";
  g.said_goodbye(&c);
  g.ended(&c, 1);
  g.said_goodbye(&b);
  g.ended(&b, 1);
  EXPECT_FALSE(g.form(1)) << "b said goodbye, and is expected back";
  EXPECT_EQ(g.join(&b2, b2.text(), 0), "");
  const auto roster = g.form(1);
  ASSERT_TRUE(roster);
  EXPECT_EQ(roster->epoch, 2U);
  EXPECT_EQ(seats_of(*roster), (std::vector<int>{1, 2}));
}

TEST(Gathering, WhoSaidGoodbyeAndDoesNotComeBackIsNotWaitedForLong) {
  Gathering g(2, 2, {1, 2}, kPatience, 0);
  Process a{0}, b{1}, a2{0, 1};
  for (Process* one : {&a, &b}) g.join(one, one->text(2), 0);
  ASSERT_TRUE(g.form(0));
  come_back(g, {&a, &b}, {}, 5);
  g.join(&a2, a2.text(2), 0);
  EXPECT_FALSE(g.form(5));
  EXPECT_TRUE(g.form(8));
}

TEST(Gathering, NewcomersKnockAndGetTheHigherRanks) {
  Gathering g(2, 2, {1, 4}, kPatience, 0);
  Process a{0}, b{3}, late{1}, too_late{2};
  g.join(&a, a.text(2), 0);
  g.join(&b, b.text(2), 0);
  ASSERT_TRUE(g.form(0));
  EXPECT_FALSE(g.knocks());
  g.join(&late, late.text(2), 0);
  EXPECT_TRUE(g.knocks());
  EXPECT_FALSE(g.form(1)) << "the group is at work";
  come_back(g, {&a, &b}, {}, 2);
  Process a2{0, 1, 0}, b2{3, 1, 1};
  g.join(&b2, b2.text(2), 0);
  g.join(&a2, a2.text(2), 0);
  const auto roster = g.form(2);
  ASSERT_TRUE(roster);
  EXPECT_EQ(seats_of(*roster), (std::vector<int>{0, 3, 1}));
  g.join(&too_late, too_late.text(2), 0);
  Process fifth{7};
  EXPECT_NE(g.join(&fifth, fifth.text(2), 0).find("may have no more"), std::string::npos);
}

TEST(Gathering, ANewcomerHoldsTheTrainingOnceItHasSaidSo) {
  Gathering g(2, 2, {1, 4}, kPatience, 0);
  Process a{0}, b{1};
  for (Process* one : {&a, &b}) g.join(one, one->text(2), 0);
  EXPECT_TRUE(g.seats_that_hold().empty()) << "they wait";
  ASSERT_TRUE(g.form(0));
  EXPECT_TRUE(g.seats_that_hold().empty()) << "they have not begun";
  g.holds(&b);
  EXPECT_EQ(g.seats_that_hold(), std::vector<int>{1});
  come_back(g, {&a}, {&b}, 2);
  JoinText empty_handed = Process{0, 1, 0}.text(2);
  empty_handed.holds = false;
  g.join(&a, empty_handed, 2);
  EXPECT_FALSE(g.form(3)) << "the only one that held it is lost";
}

TEST(Gathering, ServersComeAfterTheWorkersAndAtLeastOneIsNeeded) {
  Gathering g(4, 2, {1, 2}, kPatience, 0);
  Process w0{0}, w1{1}, s0{2}, s1{3};
  const auto serving = [](const Process& one) {
    JoinText text = one.text(4);
    text.serves = true;
    return text;
  };
  g.join(&s1, serving(s1), 0);
  g.join(&w1, w1.text(4), 0);
  g.join(&s0, serving(s0), 0);
  EXPECT_FALSE(g.form(0));
  g.join(&w0, w0.text(4), 0);
  const auto roster = g.form(0);
  ASSERT_TRUE(roster);
  EXPECT_EQ(roster->workers, 2);
  EXPECT_EQ(seats_of(*roster), (std::vector<int>{0, 1, 2, 3}));
  come_back(g, {&w0, &w1}, {&s0, &s1}, 1);
  Process again0{0, 1}, again1{1, 1, 1}, server{2};
  g.join(&again0, again0.text(4), 0);
  g.join(&again1, again1.text(4), 0);
  EXPECT_FALSE(g.form(1));
  g.join(&server, serving(server), 0);
  EXPECT_TRUE(g.form(1));
}

TEST(Gathering, ThoseWhoHoldNothingDoNotStartTheTrainingAnew) {
  Gathering g(2, 2, {1, 2}, kPatience, 0);
  Process a{0}, b{1}, fresh{0};
  g.join(&a, a.text(2), 0);
  g.join(&b, b.text(2), 0);
  ASSERT_TRUE(g.form(0));
  come_back(g, {}, {&a, &b}, 1);
  g.join(&fresh, fresh.text(2), 0);
  EXPECT_FALSE(g.form(30));
  EXPECT_EQ(g.hopeless(30), "");
  EXPECT_NE(g.hopeless(1 + kPatience + 1).find("all workers that held the training were lost"), std::string::npos);
}

TEST(Gathering, OnceSomebodyHeldTheTrainingOneWhoDoesMustBeThere) {
  Gathering g(2, 2, {1, 2}, kPatience, 0);
  Process a{0}, b{1};
  g.join(&a, a.text(2), 0);
  g.join(&b, b.text(2), 0);
  ASSERT_TRUE(g.form(0));
  come_back(g, {}, {&a, &b}, 1);
  Process a2{0, 1}, newcomer{1};
  g.join(&a2, a2.text(2), 1);
  g.join(&newcomer, newcomer.text(2), 1);
  ASSERT_TRUE(g.form(1));
  come_back(g, {&newcomer}, {&a2}, 2);  // the holder is lost before it could hand over
  JoinText empty_handed = Process{1, 2, 1}.text(2);
  empty_handed.holds = false;
  g.join(&b, empty_handed, 2);
  EXPECT_FALSE(g.form(10));
}

TEST(Gathering, AMemberThatDoesNotNoticeTheEndOfItsGroupIsStuck) {
  Gathering g(2, 2, {1, 2}, kPatience, 0);
  Process a{0}, b{1}, a2{0, 1};
  g.join(&a, a.text(2), 0);
  g.join(&b, b.text(2), 0);
  ASSERT_TRUE(g.form(0));
  EXPECT_TRUE(g.stuck(1000, 5).empty()) << "both train";
  g.said_goodbye(&a);
  g.ended(&a, 10);
  g.join(&a2, a2.text(2), 10);
  EXPECT_TRUE(g.stuck(14, 5).empty());
  EXPECT_EQ(g.stuck(16, 5), std::vector<Gathering::Id>{&b});
  g.ended(&b, 16);
  EXPECT_TRUE(g.form(16));
  EXPECT_TRUE(g.stuck(1000, 5).empty());
}

TEST(Gathering, TooFewWorkersAreToldSoAfterTheTimeout) {
  Gathering g(3, 3, {2, 3}, kPatience, 0);
  Process a{0}, b{1}, c{2}, a2{0, 1};
  for (Process* one : {&a, &b, &c}) g.join(one, one->text(), 0);
  ASSERT_TRUE(g.form(0));
  come_back(g, {&a}, {&b, &c}, 1);
  g.join(&a2, a2.text(), 0);
  EXPECT_FALSE(g.form(10));
  EXPECT_NE(g.hopeless(100).find("1 worker is left of at least 2"), std::string::npos);
}

TEST(Gathering, AnElasticJobStartsWithFewerWhereSomeNeverCome) {
  Gathering g(3, 3, {2, 3}, kPatience, 0);
  Process a{0}, c{2};
  g.join(&a, a.text(), 0);
  g.join(&c, c.text(), 0);
  EXPECT_FALSE(g.form(59));
  const auto roster = g.form(61);
  ASSERT_TRUE(roster);
  EXPECT_EQ(seats_of(*roster), (std::vector<int>{0, 2}));
}

// Joins, goodbyes and losses at random: every group consists of processes that wait, each seat once, with at least the
// smallest number of workers, and no two groups are at work at a time.
TEST(Gathering, RandomEventsNeverFormAnImpossibleGroup) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    Gathering g(4, 4, {2, 6}, kPatience, 0);
    std::vector<std::unique_ptr<Process>> all;
    std::set<Process*> here, at_work;
    std::uint32_t epoch = 0;
    double now = 0;
    for (int event = 0; event < 200; ++event) {
      now += rng.uniform(0, 2);
      if (rng.below(2) == 0) {
        const bool survivor = epoch > 0 && rng.below(2) == 0;
        all.push_back(std::make_unique<Process>(
            Process{static_cast<int>(rng.below(7)), survivor ? epoch : 0, static_cast<int>(rng.below(4))}));
        if (g.join(all.back().get(), all.back()->text(4), 0).empty()) here.insert(all.back().get());
      } else if (!here.empty()) {
        Process* one = *std::next(here.begin(), static_cast<std::ptrdiff_t>(rng.below(here.size())));
        if (rng.below(2) == 0) g.said_goodbye(one);
        g.ended(one, now);
        here.erase(one);
        at_work.erase(one);
      }
      const auto roster = g.form(now);
      if (!roster) continue;
      ASSERT_TRUE(at_work.empty()) << seed;
      ASSERT_EQ(roster->epoch, ++epoch);
      ASSERT_GE(roster->workers, 2);
      ASSERT_EQ(roster->ranks.size(), here.size());
      const auto seats = seats_of(*roster);
      ASSERT_EQ(std::set<int>(seats.begin(), seats.end()).size(), seats.size()) << seed;
      at_work = here;
    }
  }
}

}  // namespace
}  // namespace slipstream
