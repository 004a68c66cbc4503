// SPDX-License-Identifier: Apache-2.0
#include "fabric/pending.h"

#include <fmt/ranges.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <set>

namespace slipstream {

Pending::Pending(std::shared_ptr<MeshCore> mesh, std::string what, std::size_t transfers)
    : mesh_(std::move(mesh)),
      what_(std::move(what)),
      count_(transfers),
      transfers_(std::make_unique<Transfer[]>(transfers)) {
  for (std::size_t i = 0; i < transfers; ++i) transfers_[i].owner = this;
}

void Pending::set(std::size_t i, int peer, Tag tag, std::uint64_t number, std::span<std::byte> bytes,
                  std::span<std::byte> more) {
  const std::lock_guard lock(mesh_->mutex);  // awaited() may look
  Transfer& t = transfers_[i];
  t.peer = peer;
  t.tag = tag;
  t.number = number;
  t.parts.ranges = {bytes, more};
}

void Pending::start(std::span<const MeshCommand> commands) {
  {
    const std::lock_guard lock(mesh_->mutex);
    if (given_up_ && !commands.empty() && commands[0].kind != MeshCommand::Kind::kWithdraw) return;
    running_ += commands.size();
  }
  mesh_->submit(commands);
}

void Pending::ended(Transfer& transfer, bool arrived) {
  const bool complete = arrived && advance(transfer);  // running_ still counts this one: the operation cannot end yet
  const std::lock_guard lock(mesh_->mutex);
  complete_ = complete_ || complete;
  failed_ = failed_ || !arrived;
  if (--running_ > 0 || (!complete_ && !failed_)) return;
  finished_ = true;
  finished_at_ = mesh_->clock.now();
  if (waited_) mesh_->changed.notify_all();
}

std::uint64_t Pending::progress() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count_; ++i) bytes += transfers_[i].moved.load(std::memory_order_relaxed);
  return bytes;
}

std::vector<int> Pending::awaited() const {
  std::set<int> peers;
  for (std::size_t i = 0; i < count_; ++i) {
    const Transfer& t = transfers_[i];
    if (t.moved.load(std::memory_order_relaxed) < t.parts.bytes() && t.peer != mesh_->rank()) peers.insert(t.peer);
  }
  return {peers.begin(), peers.end()};
}

std::string Pending::names(const std::vector<int>& peers) const {
  std::vector<std::string> names;
  names.reserve(peers.size());
  for (const int peer : peers) names.push_back(mesh_->name(peer));
  return names.empty() ? "itself" : fmt::format("{}", fmt::join(names, ", "));
}

void Pending::wait() {
  std::unique_lock lock(mesh_->mutex);
  waited_ = true;
  mesh_->waiting_for = what_;
  const std::chrono::duration<double> timeout(mesh_->patience.waiting());
  for (std::uint64_t before = progress(); !finished_ && !mesh_->failure;) {
    const bool in_time =
        mesh_->changed.wait_for(lock, timeout, [this] { return finished_ || mesh_->failure.has_value(); });
    if (in_time) break;
    if (const std::uint64_t now = progress(); now != before) {
      before = now;
      continue;
    }
    const std::vector<int> peers = awaited();
    const std::string text = fmt::format(
        "{} waited {:.0f} s for {} in a {}: the connection lives, but nothing came; do all ranks run the same "
        "steps?",
        mesh_->name(mesh_->rank()), timeout.count(), names(peers), what_);
    lock.unlock();
    mesh_->stalled(text);
    lock.lock();
  }
  mesh_->waiting_for.clear();
  mesh_->patience.waited_until(mesh_->clock.now());
  if (!finished_ || failed_) mesh_->throw_failure();
}

bool Pending::done() {
  const std::lock_guard lock(mesh_->mutex);
  return finished_ || mesh_->failure.has_value();
}

void Pending::settle() noexcept {
  try {
    std::unique_lock lock(mesh_->mutex);
    if (finished_ || running_ == 0) return;
    given_up_ = true;  // nothing more is started from now on
    lock.unlock();
    std::vector<MeshCommand> withdrawals;
    for (std::size_t i = 0; i < count_; ++i) withdrawals.push_back({MeshCommand::Kind::kWithdraw, &transfers_[i]});
    start(withdrawals);  // each is answered, so that no command with our memory is left
    lock.lock();
    waited_ = true;
    const std::chrono::duration<double> timeout(mesh_->patience.waiting());
    const auto at_rest = [this] { return running_ == 0; };
    for (std::uint64_t before = progress(); !mesh_->changed.wait_for(lock, timeout, at_rest);) {
      if (const std::uint64_t now = progress(); now != before) {
        before = now;
        continue;
      }
      const std::vector<int> peers = awaited();
      lock.unlock();
      mesh_->stalled(
          fmt::format("{} gave up a {} that {} did not take", mesh_->name(mesh_->rank()), what_, names(peers)));
      lock.lock();
    }
  } catch (const std::exception&) {  // from the lock: there is nothing left to wait for
  }
}

}  // namespace slipstream
