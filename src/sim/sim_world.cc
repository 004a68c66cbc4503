// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_world.h"

#include <slipstream/base/error.h>

#include <cmath>
#include <utility>

namespace slipstream {
namespace {

int checked_ranks(const SimWorldOptions& options) {
  if (options.ranks < 1) fail<ConfigError>("a simulation of {} ranks; it takes at least one", options.ranks);
  if (!(options.timeout_s > 0.0) || !std::isfinite(options.timeout_s)) {
    fail<ConfigError>("timeout_s = {} of a simulation must be above 0 and finite", options.timeout_s);
  }
  if (options.servers < 0 || (options.servers_beside && options.servers != options.ranks)) {
    fail<ConfigError>("{} servers for {} workers; beside the workers there is one for each", options.servers,
                      options.ranks);
  }
  return options.ranks + options.servers;
}

SimHosts hosts_of(const SimWorldOptions& options) { return {options.ranks, options.servers_beside}; }

}  // namespace

int SimPort::size() const { return world_.core_.hosts.workers; }
Fabric::Servers SimPort::servers() const { return {world_.core_.ranks - size(), size()}; }
bool SimPort::beside(int rank) const {
  return rank != rank_ && world_.core_.hosts.of(rank) == world_.core_.hosts.of(rank_);
}

double SimPort::VirtualClock::now() const { return world_.now(); }

InFlight SimPort::sum(std::span<float> values, Wire wire) {
  world_.core_.scheduler.check_stopped();
  return world_.collectives_.sum(rank_, values, wire);
}

InFlight SimPort::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  world_.core_.scheduler.check_stopped();
  return world_.collectives_.gather(rank_, mine, all);
}

InFlight SimPort::send(int to, Tag tag, std::span<const std::byte> bytes, std::span<const std::byte> more) {
  world_.core_.scheduler.check_stopped();
  return world_.messages_.send(rank_, to, tag, bytes, more);
}

InFlight SimPort::recv(int from, Tag tag, std::span<std::byte> bytes, std::span<std::byte> more) {
  world_.core_.scheduler.check_stopped();
  return world_.messages_.recv(rank_, from, tag, bytes, more);
}

SimLetter SimPort::next_letter() { return world_.messages_.next(rank_); }

void SimPort::compute(double seconds) {
  check(seconds >= 0.0 && std::isfinite(seconds), "rank {} computes for {} s; this takes a time of at least 0", rank_,
        seconds);
  world_.core_.scheduler.sleep_until(world_.now() + seconds, SimScheduler::Sleep::kComputing);
}

void SimPort::mark_step(std::int64_t step) { world_.mark_step(rank_, step); }

SimWorld::SimWorld(const SimWorldOptions& options)
    : core_{checked_ranks(options),
            hosts_of(options),
            options.timeout_s,
            options.record_events,
            SimScheduler(core_.ranks, options.seed),
            SimFaults(options.faults, core_.ranks, core_.hosts),
            SimPorts(core_.ranks, core_.hosts, options.link, options.pair_links, options.bytes_scale, core_.faults),
            std::vector<std::vector<const void*>>(static_cast<std::size_t>(core_.ranks)),
            {}},
      collectives_(core_),
      messages_(core_) {
  for (auto& entry : core_.faults.entries()) {
    const Fault& fault = entry.fault;
    if (std::isfinite(fault.at.seconds)) core_.scheduler.at(fault.at.seconds, [this, &entry] { begin(entry); });
    if (std::isfinite(fault.until.seconds)) {
      core_.scheduler.at(fault.until.seconds, [&entry] {
        entry.active = false;
        entry.over = true;
      });
    }
  }
}

std::vector<RankOutcome> SimWorld::run(const std::function<void(SimPort&)>& body) {
  check(!std::exchange(used_, true), "a SimWorld runs once; make another for another run");
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(core_.ranks));
  core_.scheduler.run([&](int rank) { outcomes[static_cast<std::size_t>(rank)] = run_rank(rank, body); });
  if (error_) std::rethrow_exception(error_);
  return outcomes;
}

RankOutcome SimWorld::run_rank(int rank, const std::function<void(SimPort&)>& body) {
  RankOutcome outcome;
  try {
    core_.scheduler.check_stopped();
    SimPort port(*this, rank);
    body(port);
  } catch (const SimScheduler::Stopped&) {
    outcome.kind = RankOutcome::Kind::kCrashed;
  } catch (const FabricError& error) {
    outcome.kind = RankOutcome::Kind::kFailed;
    outcome.error = error.what();
  } catch (...) {
    if (!error_) error_ = std::current_exception();
    core_.scheduler.stop_all();
  }
  outcome.ended_at = now();
  core_.note(rank, outcome.finished() ? "finished" : "ended early");
  return outcome;
}

void SimWorld::mark_step(int rank, std::int64_t step) {
  for (auto& entry : core_.faults.entries()) {
    if (entry.fault.ranks.front() != rank) continue;
    if (entry.fault.until.step == step) {
      entry.active = false;
      entry.over = true;
    }
    if (entry.fault.at.step == step) begin(entry);
  }
  core_.scheduler.check_stopped();
}

void SimWorld::lose(int rank) {
  core_.faults.set_crashed(rank);
  if (rank < core_.hosts.workers) collectives_.lose_rank(rank);
  messages_.lose_rank(rank);
  core_.scheduler.stop(rank);
}

void SimWorld::begin(SimFaults::Entry& entry) {
  if (entry.active || entry.over) return;  // a step that is marked twice triggers once
  entry.active = true;
  const Fault& fault = entry.fault;
  const int rank = fault.ranks.front();
  core_.note(rank, "a fault begins");
  switch (fault.kind) {
    case Fault::Kind::kCrash:
      for (int r = 0; r < core_.ranks; ++r) {
        if (core_.hosts.of(r) == rank) lose(r);
      }
      break;
    case Fault::Kind::kFreeze:
      for (int r = core_.ranks; r-- > 0;) {  // the worker last: it may be the running one, which then sleeps in here
        if (core_.hosts.of(r) == rank) core_.scheduler.freeze(r, fault.seconds);
      }
      break;
    case Fault::Kind::kPartition:
      collectives_.cut(fault);
      messages_.cut(fault);
      break;
    case Fault::Kind::kDrop:
    case Fault::Kind::kSlow:
      break;  // looked up when something is sent
  }
}

}  // namespace slipstream
