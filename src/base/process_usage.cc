// SPDX-License-Identifier: Apache-2.0
#include "base/process_usage.h"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace slipstream {

ProcessUsage ProcessUsage::now() {
  ProcessUsage found;
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) == 0) found.voluntary_switches = used.ru_nvcsw;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "Threads:") status >> found.threads;
  }
  return found;
}

}  // namespace slipstream
