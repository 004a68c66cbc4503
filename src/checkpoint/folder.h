// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint on disk. A folder of checkpoints, which all ranks of a job see, looks like this:
//
//   checkpoints/latest                             the name of the newest complete one, "step-000060"
//   checkpoints/step-000060/shared.safetensors     what all ranks hold alike: often weights and optimizer state
//                           rank-0.safetensors …   what this rank alone holds, the shards of its servers included
//                           meta.json              what was saved, and size and hash of every file
//
// The order makes it whole or absent: all files are durable before meta.json is written, meta.json before `latest`
// moves, `latest` before older checkpoints go. A folder without meta.json is an attempt that did not end.
// Damage is a DataError with the file and the place; what cannot be written is a ConfigError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/state_archive.h"

namespace slipstream {

using Texts = std::vector<std::pair<std::string, std::string>>;

struct CheckpointMeta {
  static constexpr std::int64_t kVersion = 1;

  std::int64_t step = 0;  // the next one to do
  std::int64_t workers = 1, servers = 0;
  std::string strategy{};
  Texts options{};                                                           // of the strategy, resolved
  Texts run{};                                                               // of whoever drives it: seed, batch, …
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> tensors{};  // of the module: entries and their shapes
  std::map<std::string, FileSum> files{};

  StateArchive::Shapes shapes() const;         // by entry
  StateArchive::Shapes module_shapes() const;  // by name in the module, as read_model() has them
  std::string to_json() const;
  static CheckpointMeta read(const std::filesystem::path& checkpoint);

  bool same_group(const CheckpointMeta& other) const { return workers == other.workers && servers == other.servers; }
  // ConfigError naming the first thing in which a job that wants to go on from `saved` differs from it. The numbers of
  // workers and servers may.
  void require_fits(const CheckpointMeta& saved, const std::filesystem::path& checkpoint) const;
};

std::string shared_file();
std::string rank_file(std::int64_t rank);
std::filesystem::path step_folder(const std::filesystem::path& folder, std::int64_t step);

// The checkpoint itself where `where` is one, else what `latest` in it names. DataError where there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& where);
bool has_checkpoint(const std::filesystem::path& folder);  // does it have a `latest`?

// Makes the place for a checkpoint of this step. One that stands there already ceases to be complete; where `latest`
// named it, or one of a later step, it names the newest complete one before, or goes.
void begin_checkpoint(const std::filesystem::path& folder, std::int64_t step);
// All files are there: the checkpoint becomes complete and the latest. Of the complete ones up to this step the newest
// `keep` stay (0: all).
void complete_checkpoint(const std::filesystem::path& folder, const CheckpointMeta& meta, std::int64_t keep);

// A rank's whole state, every file checked against meta.json.
StateArchive read_rank(const std::filesystem::path& checkpoint, const CheckpointMeta& meta, std::int64_t rank);

// The model's tensors, by their names in the module: as all ranks hold them or, where a strategy's workers differ for
// some steps, the mean over the ranks.
StateArchive read_model(const std::filesystem::path& checkpoint, const CheckpointMeta& meta);

// Parameters and the module's other tensors stand in files under these prefixes.
inline constexpr const char* kModelPrefix = "model/";
inline constexpr const char* kBufferPrefix = "buffer/";
std::optional<std::string> name_in_module(const std::string& entry);  // nothing where it is none of these

}  // namespace slipstream
