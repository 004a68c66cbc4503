// SPDX-License-Identifier: Apache-2.0
#include "watch/ledger.h"

#include <slipstream/base/error.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/atomic_file.h"

namespace slipstream {

namespace {

// The lines of an earlier run that hold steps before this one.
std::string lines_before(const std::string& path, std::int64_t first_step) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (record.is_object() && record.value("step", first_step) < first_step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

Ledger::Ledger(const std::string& path, std::int64_t first_step) : path_(path) {
  if (first_step > 0) write_atomically(path, lines_before(path, first_step));
  file_.open(path, first_step > 0 ? std::ios::app : std::ios::trunc);
  if (!file_) fail<ConfigError>("cannot write {}: {}", path, std::strerror(errno));
}

void Ledger::write(const StepRecord& r, std::int64_t epoch, std::optional<std::uint64_t> weights_hash) {
  const std::string loss = std::isfinite(r.loss) ? fmt::format("{:.6g}", r.loss) : "null";  // JSON has no NaN
  file_ << fmt::format(
      R"({{"step":{},"epoch":{},"loss":{},"lr":{:.6g},"step_ms":{:.3f},"compute_ms":{:.3f},"update_ms":{:.3f},)"
      R"("encode_ms":{:.3f},"exposed_ms":{:.3f},"wire_ms":{:.3f},"bytes_sent":{:.0f},"bytes_received":{:.0f})",
      r.t, epoch, loss, r.lr, 1e3 * r.seconds, 1e3 * r.useful_seconds(), 1e3 * r.update_seconds, 1e3 * r.encode_seconds,
      1e3 * r.exposed_seconds, 1e3 * r.wire_seconds, r.bytes_sent, r.bytes_received);
  if (weights_hash) file_ << fmt::format(R"(,"weights_hash":"{:016x}")", *weights_hash);
  if (!r.news.empty()) file_ << ",\"news\":" << nlohmann::json(r.news).dump();
  file_ << "}\n" << std::flush;
  if (!file_) fail<ConfigError>("cannot write the ledger {}; is the disk full?", path_);
}

void Ledger::evaluated(std::int64_t steps, const std::string& metric, double value) {
  file_ << fmt::format(R"({{"step":{},"{}":{:.6g}}})", steps, metric, value) << "\n" << std::flush;
  if (!file_) fail<ConfigError>("cannot write the ledger {}; is the disk full?", path_);
}

void Ledger::regrouped(const Change& c) {
  file_ << fmt::format(R"({{"step":{},"regroup":{},"done":{},"workers":{},"lost":{},"joined":{},"written_off":{:.6g},)"
                       R"("recovery_ms":{:.3f},"why":{}}})",
                       c.step, c.group, c.done, c.workers, c.lost, c.joined, c.written_off, 1e3 * c.seconds,
                       nlohmann::json(c.why).dump())
        << "\n"
        << std::flush;
  if (!file_) fail<ConfigError>("cannot write the ledger {}; is the disk full?", path_);
}

}  // namespace slipstream
