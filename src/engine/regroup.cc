// SPDX-License-Identifier: Apache-2.0
#include "engine/regroup.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/vec.h"

namespace slipstream {
namespace {

struct Arrival {
  std::int64_t steps = -1, rank = -1, workers = 0, group = 0;
};

}  // namespace

Meeting meet(Fabric& net, const Holdings& mine) {
  const Arrival me{mine.steps, mine.rank, mine.workers, mine.group};
  std::vector<Arrival> all(static_cast<std::size_t>(net.size()));
  net.gather(std::as_bytes(std::span(&me, 1)), std::as_writable_bytes(std::span(all))).wait();
  const auto furthest =
      std::max_element(all.begin(), all.end(), [](const Arrival& a, const Arrival& b) { return a.steps < b.steps; });
  Meeting meeting;
  meeting.first = furthest->steps < 0;
  for (const Arrival& one : all) meeting.group = std::max(meeting.group, one.group + 1);
  if (meeting.first) return meeting;
  meeting.source = static_cast<int>(furthest - all.begin());
  meeting.steps = furthest->steps;
  std::set<std::int64_t> here;
  for (const Arrival& one : all) {
    if (one.steps < 0 || one.group != furthest->group || !here.insert(one.rank).second) ++meeting.joined;
  }
  meeting.lost = static_cast<int>(furthest->workers) - static_cast<int>(here.size());
  // What the source knew about the others, so that all write the same to their ledgers.
  double squares = 0;
  for (std::size_t r = 0; r < mine.norms.size(); ++r) {
    if (here.count(static_cast<std::int64_t>(r)) == 0) squares += mine.norms[r] * mine.norms[r];
  }
  std::vector<double> known(all.size());
  net.gather(std::as_bytes(std::span(&squares, 1)), std::as_writable_bytes(std::span(known))).wait();
  meeting.written_off = std::sqrt(known[static_cast<std::size_t>(meeting.source)]);
  return meeting;
}

void FromSource::floats(std::string_view, std::span<float> values) {
  if (net_.rank() != source_) vec::zero(values);
  net_.sum(values).wait();  // a sum with zeros is a broadcast
}

void FromSource::integer(std::string_view, std::int64_t& value) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(net_.size()));
  const std::int64_t mine = value;
  net_.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))).wait();
  value = all[static_cast<std::size_t>(source_)];
}

}  // namespace slipstream
