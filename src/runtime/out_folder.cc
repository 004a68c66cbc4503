// SPDX-License-Identifier: Apache-2.0
#include "runtime/out_folder.h"

#include <slipstream/base/error.h>

#include <filesystem>

#include "checkpoint/folder.h"

namespace slipstream {

std::string ledger_name(int rank) { return fmt::format("ledger.rank{}.jsonl", rank); }

void protect_earlier_run(const TrainConfig& config, int rank, std::uint32_t group) {
  if (config.overwrite || !config.resume.empty() || group > 1) return;
  for (const std::string& name : {std::string("summary.json"), std::string("model.pt"), ledger_name(rank)}) {
    std::error_code ignored;
    if (config.out.empty() || !std::filesystem::exists(config.out + "/" + name, ignored)) continue;
    fail<ConfigError>(
        "--out {} holds {} of an earlier run; use another directory, --overwrite to replace it, or --resume latest to "
        "go on from its checkpoints",
        config.out, name);
  }
  if (!config.checkpoint_every.empty() && has_checkpoint(config.checkpoint_folder())) {
    fail<ConfigError>("{} holds checkpoints of an earlier run; use --resume latest to go on from them, or --overwrite",
                      config.checkpoint_folder());
  }
}

}  // namespace slipstream
