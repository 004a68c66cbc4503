// SPDX-License-Identifier: Apache-2.0
#include "runtime/chaos.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

namespace slipstream {
namespace {

constexpr std::pair<const char*, Chaos::Kind> kKinds[] = {
    {"kills", Chaos::Kind::kKill}, {"freezes", Chaos::Kind::kFreeze}, {"cuts", Chaos::Kind::kCut}};

[[noreturn]] void refuse(const std::string& spec) {
  fail<ConfigError>("--chaos {} is not of the form kills=N,freezes=M,cuts=K; leave out what you do not want", spec);
}

}  // namespace

const char* name_of(Chaos::Kind kind) {
  return kind == Chaos::Kind::kKill ? "kill" : kind == Chaos::Kind::kFreeze ? "freeze" : "cut";
}

Chaos::Chaos(const std::string& spec, std::uint64_t seed) : rng_(seed, 0, 0) {
  std::istringstream in(spec);
  for (std::string part; std::getline(in, part, ',');) {
    const auto equals = part.find('=');
    const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const auto& one) { return part.substr(0, equals) == one.first; });
    int count = 0;
    const char* const end = part.data() + part.size();
    if (equals == std::string::npos || kind == std::end(kKinds)) refuse(spec);
    const auto read = std::from_chars(part.data() + equals + 1, end, count);
    if (read.ec != std::errc{} || read.ptr != end || count < 0 || count > 1'000'000) refuse(spec);
    left_.insert(left_.end(), static_cast<std::size_t>(count), kind->second);
    cuts_ = cuts_ || (kind->second == Kind::kCut && count > 0);
  }
  planned_ = static_cast<std::int64_t>(left_.size());
  for (std::size_t i = left_.size(); i > 1; --i) std::swap(left_[i - 1], left_[rng_.below(i)]);
}

std::optional<Chaos::Fault> Chaos::next(double now, const std::vector<int>& running, int spare) {
  if (left_.empty()) return {};
  if (due_ < 0) due_ = now + kLeastSeconds + (kMostSeconds - kLeastSeconds) * rng_.uniform();
  if (now < due_ || spare < 1 || running.empty()) return {};
  due_ = -1;
  const Kind kind = left_.back();
  left_.pop_back();
  return Fault{kind, running[rng_.below(running.size())]};
}

}  // namespace slipstream
