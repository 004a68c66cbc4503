// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_collectives.h"

#include <fmt/ranges.h>
#include <slipstream/base/error.h>

#include <cstring>
#include <limits>

#include "base/vec.h"
#include "fabric/sum_rule.h"
#include "fabric/wire.h"

namespace slipstream {
namespace {

std::string_view sum_name(Wire wire) {
  return wire == Wire::kFp32 ? "sum" : wire == Wire::kFp16 ? "sum in fp16" : "sum in bf16";
}

}  // namespace

struct SimCollectives::Collective {
  std::string_view kind;
  std::size_t bytes = 0;  // of one rank's contribution
  int first_rank = 0;     // the first to issue it; for messages
  std::int64_t number = 0;
  int missing = 0;
  std::vector<bool> issued, lost, gave_up;  // by rank
  const Fault* cut = nullptr;
  bool broken = false;
  double ends_at = std::numeric_limits<double>::infinity();

  int rounds = 0;            // in each, everybody sends to everybody …
  double round_bytes = 0.0;  // … this many bytes

  std::vector<std::vector<float>> parts;  // sum: by rank, emptied as they are added
  std::size_t added = 0;
  Wire wire = Wire::kFp32;
  std::vector<float> total;
  std::vector<std::byte> all;  // gather

  // Adds the parts that come next in rank order, and frees their memory as early as possible.
  void add_parts() {
    for (; added < parts.size() && issued[added]; ++added) {
      if (added == 0) {
        total = std::move(parts[0]);
      } else {
        vec::add(total, parts[added]);
        std::vector<float>().swap(parts[added]);
      }
    }
    if (added == parts.size()) wire_round(wire, total);
  }

  std::string absent(int seen_from) const;
};

// The ranks to blame: those that are missing; if there are none, those that gave up.
std::string SimCollectives::Collective::absent(int seen_from) const {
  std::vector<int> blamed, left;
  for (int r = 0; r < static_cast<int>(issued.size()); ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (!issued[i] || lost[i] || (cut != nullptr && cut->separates(seen_from, r))) blamed.push_back(r);
    if (gave_up[i] && r != seen_from) left.push_back(r);
  }
  if (blamed.empty()) blamed = left;
  return fmt::format("{} {}", blamed.size() == 1 ? "rank" : "ranks", fmt::join(blamed, ", "));
}

class SimCollectives::CollectiveOperation final : public SimOperation {
 public:
  CollectiveOperation(SimCore& core, int rank, std::string what, std::shared_ptr<Collective> collective,
                      std::span<const std::byte> mine, std::span<std::byte> result)
      : SimOperation(core, rank, std::move(what), mine, result), collective_(std::move(collective)), result_(result) {}

 private:
  double settles_at() const override { return succeeds() ? collective_->ends_at : deadline(); }
  const void* subject() const override { return collective_.get(); }

  void conclude() override {
    if (!succeeds()) {
      collective_->gave_up[static_cast<std::size_t>(rank_)] = true;
      collective_->broken = true;
      fail<FabricError>("{}: {} did not take part within {} s; see whether it still runs and can be reached", what_,
                        collective_->absent(rank_), core_.timeout_s);
    }
    const bool summed = collective_->all.empty();
    const void* from = summed ? static_cast<const void*>(collective_->total.data()) : collective_->all.data();
    std::memcpy(result_.data(), from, result_.size());
  }

  bool succeeds() const { return collective_->missing == 0 && !collective_->broken; }

  std::shared_ptr<Collective> collective_;
  std::span<std::byte> result_;
};

std::shared_ptr<SimCollectives::Collective> SimCollectives::join(int rank, std::string_view kind, std::size_t bytes) {
  const std::int64_t number = issued_[static_cast<std::size_t>(rank)]++;
  auto& collective = open_[number];
  const auto ranks = static_cast<std::size_t>(core_.hosts.workers);
  if (!collective) {
    collective = std::make_shared<Collective>();
    collective->kind = kind;
    collective->bytes = bytes;
    collective->first_rank = rank;
    collective->number = number;
    collective->missing = core_.hosts.workers;
    for (auto* flags : {&collective->issued, &collective->lost, &collective->gave_up}) flags->resize(ranks);
  }
  check(
      collective->kind == kind && collective->bytes == bytes,
      "ranks issue different operations: rank {} issues {} of {} bytes where rank {} issued {} of {} bytes; all ranks "
      "must issue the same operations in the same order",
      rank, kind, bytes, collective->first_rank, collective->kind, collective->bytes);
  collective->issued[static_cast<std::size_t>(rank)] = true;
  --collective->missing;
  return collective;
}

void SimCollectives::start_if_complete(const std::shared_ptr<Collective>& collective) {
  if (collective->missing > 0) return;
  open_.erase(collective->number);
  if (const Fault* partition = core_.faults.partition()) {
    collective->broken = true;
    collective->cut = partition;
  }
  if (collective->broken) return;
  const double now = core_.scheduler.now();
  collective->ends_at = core_.ports.exchange(collective->rounds, collective->round_bytes, now);
  core_.wake_waiting_for(collective.get(), collective->ends_at);
  std::erase_if(under_way_, [now](const auto& old) { return old->ends_at <= now; });
  under_way_.push_back(collective);
}

InFlight SimCollectives::sum(int rank, std::span<float> values, Wire wire) {
  if (values.empty() || core_.hosts.workers == 1) return {};
  const std::string_view kind = sum_name(wire);
  auto collective = join(rank, kind, values.size_bytes());
  collective->wire = wire;
  const int ranks = core_.hosts.workers;
  const std::size_t width = wire_width(wire);
  const auto bytes = static_cast<double>(values.size() * width);
  const bool whole = goes_whole(bytes * core_.ports.bytes_scale(), ranks);
  collective->rounds = whole ? 1 : 2;
  collective->round_bytes = whole                 ? bytes
                            : wire == Wire::kFp32 ? bytes / ranks
                                                  : static_cast<double>(sum_shard(values.size(), ranks) * width);
  collective->parts.resize(static_cast<std::size_t>(core_.hosts.workers));
  auto& part = collective->parts[static_cast<std::size_t>(rank)];
  part.assign(values.begin(), values.end());
  wire_round(wire, part);
  collective->add_parts();
  auto operation =
      std::make_unique<CollectiveOperation>(core_, rank, fmt::format("{} of {} bytes", kind, values.size_bytes()),
                                            collective, std::span<const std::byte>{}, std::as_writable_bytes(values));
  start_if_complete(collective);
  return InFlight(std::move(operation));
}

InFlight SimCollectives::gather(int rank, std::span<const std::byte> mine, std::span<std::byte> all) {
  const auto ranks = static_cast<std::size_t>(core_.hosts.workers);
  check(all.size() == mine.size() * ranks, "gather of {} bytes over {} ranks: the result takes {} bytes, not {}",
        mine.size(), ranks, mine.size() * ranks, all.size());
  if (mine.empty()) return {};
  if (ranks == 1) {
    std::memmove(all.data(), mine.data(), mine.size());
    return {};
  }
  auto collective = join(rank, "gather", mine.size());
  collective->rounds = 1;
  collective->round_bytes = static_cast<double>(mine.size());
  collective->all.resize(all.size());
  std::memcpy(collective->all.data() + static_cast<std::size_t>(rank) * mine.size(), mine.data(), mine.size());
  auto operation = std::make_unique<CollectiveOperation>(core_, rank, fmt::format("gather of {} bytes", mine.size()),
                                                         collective, mine, all);
  start_if_complete(collective);
  return InFlight(std::move(operation));
}

void SimCollectives::lose_rank(int rank) {
  const double now = core_.scheduler.now();
  const auto lose = [rank](Collective& collective) {
    collective.broken = true;
    collective.lost[static_cast<std::size_t>(rank)] = true;
  };
  for (auto& [number, collective] : open_) lose(*collective);
  for (auto& collective : under_way_) {
    if (collective->ends_at > now) lose(*collective);
  }
}

void SimCollectives::cut(const Fault& partition) {
  // Open collectives are judged when their last rank comes: the partition may be over by then.
  for (auto& collective : under_way_) {
    if (collective->ends_at <= core_.scheduler.now()) continue;
    collective->broken = true;
    collective->cut = &partition;
  }
}

}  // namespace slipstream
