// SPDX-License-Identifier: Apache-2.0
#include "launch/lab_run.h"

#include <cstdlib>
#include <utility>

#include "launch/crew.h"
#include "slipstream/base/error.h"

namespace slipstream {

int run_in_lab(const LabSpec& spec, int hosts, std::vector<std::string> command) {
  if (command.empty()) fail<ConfigError>("no command to run in the lab: write it after `--`, for example `-- ip addr`");
  const Lab lab(spec, hosts);
  std::vector<CrewMember> members;
  for (int host = 0; host < hosts; ++host) {
    const auto prepare = [&lab, host] {
      lab.enter(host);
      setenv("RANK", std::to_string(host).c_str(), 1);
      setenv("WORLD_SIZE", std::to_string(lab.hosts()).c_str(), 1);
      setenv("MASTER_ADDR", lab.address(0).c_str(), 1);
      setenv("MASTER_PORT", "29500", 1);
      setenv("GLOO_SOCKET_IFNAME", "e0", 1);
    };
    members.push_back({command, prepare});
  }
  const CrewOutcome outcome = run_crew(std::move(members));
  return outcome.interrupted ? Interrupted("").exit_code() : outcome.worst;
}

}  // namespace slipstream
