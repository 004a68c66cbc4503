// SPDX-License-Identifier: Apache-2.0
//
// SimScheduler: runs the ranks of a simulated job as threads, exactly one at a time, in virtual time. A rank runs until
// it sleeps; the sleeper that wakes earliest runs next, ties broken by a seeded generator. Virtual time therefore never
// goes back, and what a rank sees at time t is what all ranks did before t.
//
// Every rank that has not ended either runs or has a time at which it wakes, so there is always one to run: no
// deadlock. All methods but run() are called by the rank that holds the baton (or by an action of at()); handing over
// the baton orders all memory accesses, so nothing here needs a lock.
#pragma once

#include <semaphore.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "base/rng.h"

namespace slipstream {

class SimScheduler {
 public:
  // Unwinds a rank that was stopped. Not a std::exception, so that no error handler catches it.
  struct Stopped {};

  enum class Sleep { kComputing, kWaiting };

  SimScheduler(int ranks, std::uint64_t seed);

  // Runs body(rank) on a thread per rank until all have ended. The body must not throw.
  void run(const std::function<void(int)>& body);

  double now() const { return now_; }
  int running() const { return running_; }  // -1 inside an action of at()

  // Puts the running rank to sleep. Throws Stopped when it is (or was already) stopped.
  void sleep_until(double time, Sleep why);
  void check_stopped() const;

  void wake(int rank, double time);       // a sleeping rank wakes at `time` instead
  void freeze(int rank, double seconds);  // adds this much to what the rank is doing; it does not wake meanwhile
  void stop(int rank);                    // the rank wakes now and unwinds; a running one unwinds at its next check
  void stop_all();

  // Calls `action` at `time`, between two ranks' turns. Actions after the last rank's end are not called.
  void at(double time, std::function<void()> action) { actions_.emplace(time, std::move(action)); }

 private:
  // A POSIX semaphore: one futex call each to pass and to take, and sanitizers understand it.
  class Baton {
   public:
    Baton() { sem_init(&semaphore_, 0, 0); }
    Baton(const Baton&) = delete;
    Baton& operator=(const Baton&) = delete;
    ~Baton() { sem_destroy(&semaphore_); }
    void pass() { sem_post(&semaphore_); }
    void take() {
      while (sem_wait(&semaphore_) != 0) {  // interrupted by a signal
      }
    }

   private:
    sem_t semaphore_;
  };

  struct Rank {
    Baton baton;
    SimScheduler* scheduler = nullptr;
    int index = 0;
    bool asleep = false;
    bool computing = false;
    bool stopped = false;
    double wakes_at = 0.0;
    double frozen_until = 0.0;
    std::uint64_t tie = 0;
  };

  static void* thread_main(void* rank);
  void enqueue(Rank& rank, double time);
  void dequeue(Rank& rank);
  Rank* pick_next();  // null when all have ended

  Rng ties_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::set<std::tuple<double, std::uint64_t, int>> asleep_;  // wakes at, tie, rank
  std::multimap<double, std::function<void()>> actions_;
  const std::function<void(int)>* body_ = nullptr;
  Baton all_ended_;
  double now_ = 0.0;
  int running_ = -1;
};

}  // namespace slipstream
