// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_operation.h"

#include <slipstream/base/error.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace slipstream {

void SimCore::wake_waiting_for(const void* subject, double time) {
  for (int r = 0; r < ranks; ++r) {
    const auto& subjects = awaited[static_cast<std::size_t>(r)];
    if (std::find(subjects.begin(), subjects.end(), subject) == subjects.end()) continue;
    scheduler.wake(r, time);
  }
}

SimOperation::SimOperation(SimCore& core, int rank, std::string what, std::span<const std::byte> memory,
                           std::span<const std::byte> more)
    : core_(core),
      rank_(rank),
      what_(std::move(what)),
      issued_at_(core.scheduler.now()),
      memory_(memory),
      more_(more),
      hash_at_issue_(memory_hash()) {
  core_.note(rank_, what_);
}

std::uint64_t SimOperation::memory_hash() const {
  const std::uint64_t first = XXH3_64bits(memory_.data(), memory_.size());
  return more_.empty() ? first : XXH3_64bits_withSeed(more_.data(), more_.size(), first);
}

bool SimOperation::done() { return ended_ || now() >= settles_at(); }

void SimOperation::wait() {
  if (ended_) {
    if (error_) std::rethrow_exception(error_);
    return;
  }
  core_.scheduler.check_stopped();
  check(core_.scheduler.running() == rank_, "{} of rank {} is waited for by rank {}", what_, rank_,
        core_.scheduler.running());
  auto& awaited = core_.awaited[static_cast<std::size_t>(rank_)];
  while (now() < settles_at()) {
    awaited = {subject()};
    core_.scheduler.sleep_until(settles_at(), SimScheduler::Sleep::kWaiting);
    awaited.clear();
  }
  ended_ = true;
  finished_at_ = settles_at();
  core_.note(rank_, what_ + " ended");
  try {
    check(memory_hash() == hash_at_issue_,
          "{}: rank {} changed the operation's memory while it was in flight; leave it alone until wait()", what_,
          rank_);
    conclude();
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

}  // namespace slipstream
