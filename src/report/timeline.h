// SPDX-License-Identifier: Apache-2.0
//
// Timeline: some steps of a trace.json, by rank and row, times in milliseconds since the first of them began. The steps
// follow each other without a gap, such as an evaluation or a checkpoint, and are late ones, since strategies that
// measure at the start change then. Reads the events that `slipstream train` writes (watch/trace.h), not every Chrome
// trace: complete events ("X") and names.
#pragma once

#include <cstddef>
#include <filesystem>
#include <istream>
#include <string>
#include <vector>

namespace slipstream {

struct TimelineSpan {
  double began_ms = 0, lasted_ms = 0;
  std::string name;
  bool background = false;
};

struct TimelineRow {
  std::string name;  // "steps", "forward", "backward", "encode", "update", "waits", "wire 1", …
  std::vector<TimelineSpan> spans;
};

struct TimelineRank {
  std::string name;
  std::vector<TimelineRow> rows;
};

using Timeline = std::vector<TimelineRank>;

// Reads at most `steps` steps. `name` appears in errors.
Timeline read_timeline(std::istream& trace, const std::string& name, std::size_t steps);
// Reads at most `steps` steps. DataError if the file is not such a trace.
Timeline read_timeline(const std::filesystem::path& file, std::size_t steps);

}  // namespace slipstream
