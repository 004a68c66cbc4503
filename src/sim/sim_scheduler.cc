// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_scheduler.h"

#include <pthread.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <cstring>

namespace slipstream {
namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 20;  // a thousand ranks should not reserve 8 GB

}  // namespace

SimScheduler::SimScheduler(int ranks, std::uint64_t seed) : ties_(seed) {
  for (int r = 0; r < ranks; ++r) {
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->scheduler = this;
    ranks_.back()->index = r;
  }
}

void SimScheduler::run(const std::function<void(int)>& body) {
  body_ = &body;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  std::vector<pthread_t> threads;
  int error = 0;
  for (auto& rank : ranks_) {
    pthread_t thread;
    error = pthread_create(&thread, &attributes, &SimScheduler::thread_main, rank.get());
    if (error != 0) break;
    threads.push_back(thread);
    enqueue(*rank, 0.0);
  }
  pthread_attr_destroy(&attributes);
  if (error != 0) stop_all();  // threads that did start must end before this throws
  if (Rank* first = pick_next()) {
    first->baton.pass();
    all_ended_.take();
  }
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
  if (error != 0) {
    fail<Error>(
        "thread {} of {} of a simulation could not be started: {}; simulate fewer ranks or raise the limit on "
        "threads",
        threads.size(), ranks_.size(), std::strerror(error));
  }
}

void* SimScheduler::thread_main(void* argument) {
  Rank& me = *static_cast<Rank*>(argument);
  SimScheduler& world = *me.scheduler;
  me.baton.take();
  (*world.body_)(me.index);
  Rank* next = world.pick_next();
  (next != nullptr ? next->baton : world.all_ended_).pass();
  return nullptr;
}

void SimScheduler::enqueue(Rank& rank, double time) {
  rank.asleep = true;
  rank.wakes_at = std::max(time, now_);
  rank.tie = ties_.next();
  asleep_.emplace(rank.wakes_at, rank.tie, rank.index);
}

void SimScheduler::dequeue(Rank& rank) {
  asleep_.erase({rank.wakes_at, rank.tie, rank.index});
  rank.asleep = false;
}

SimScheduler::Rank* SimScheduler::pick_next() {
  running_ = -1;
  while (!asleep_.empty()) {
    const auto [time, tie, index] = *asleep_.begin();
    if (!actions_.empty() && actions_.begin()->first <= time) {
      auto due = actions_.extract(actions_.begin());
      now_ = std::max(now_, due.key());
      due.mapped()();  // may move sleepers, so look again
      continue;
    }
    Rank& next = *ranks_[static_cast<std::size_t>(index)];
    dequeue(next);
    now_ = time;
    running_ = index;
    return &next;
  }
  return nullptr;
}

void SimScheduler::check_stopped() const {
  check(running_ >= 0, "a simulated rank was used from outside of its own thread");
  if (ranks_[static_cast<std::size_t>(running_)]->stopped) throw Stopped{};
}

void SimScheduler::sleep_until(double time, Sleep why) {
  check_stopped();
  Rank& me = *ranks_[static_cast<std::size_t>(running_)];
  me.computing = why == Sleep::kComputing;
  enqueue(me, time);
  Rank* next = pick_next();
  if (next != &me) {
    next->baton.pass();
    me.baton.take();
  }
  check_stopped();
}

void SimScheduler::wake(int rank, double time) {
  Rank& sleeper = *ranks_[static_cast<std::size_t>(rank)];
  if (!sleeper.asleep || sleeper.stopped) return;
  dequeue(sleeper);
  enqueue(sleeper, std::max(time, sleeper.frozen_until));
}

void SimScheduler::freeze(int rank, double seconds) {
  Rank& frozen = *ranks_[static_cast<std::size_t>(rank)];
  if (frozen.stopped) return;
  frozen.frozen_until = std::max(frozen.frozen_until, now_) + seconds;
  if (rank == running_) {
    sleep_until(frozen.frozen_until, Sleep::kComputing);
  } else if (frozen.asleep) {
    wake(rank, frozen.computing ? frozen.wakes_at + seconds : frozen.wakes_at);
  }
}

void SimScheduler::stop(int rank) {
  Rank& stopped = *ranks_[static_cast<std::size_t>(rank)];
  if (stopped.stopped) return;
  stopped.frozen_until = 0.0;
  if (stopped.asleep) wake(rank, now_);
  stopped.stopped = true;
}

void SimScheduler::stop_all() {
  for (auto& rank : ranks_) stop(rank->index);
}

}  // namespace slipstream
