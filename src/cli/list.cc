// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "cli/verbs.h"

namespace slipstream {

Verb add_list(CLI::App& app) {
  app.add_subcommand("list", "all strategies, a line each");
  return [](const Invocation& invocation) {
    std::size_t width = 0;
    for (const StrategyInfo& info : invocation.registry.all()) width = std::max(width, info.name.size());
    for (const StrategyInfo& info : invocation.registry.all()) {
      std::printf("%-*s  %s\n", static_cast<int>(width), info.name.c_str(), info.title.c_str());
    }
    std::printf("\n`slipstream explain NAME` tells more; `slipstream train --strategy NAME` runs it.\n");
    return 0;
  };
}

}  // namespace slipstream
