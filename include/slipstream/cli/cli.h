// SPDX-License-Identifier: Apache-2.0
//
// The command line as a function, for programs that bring strategies of their own (see examples/my_strategy.cc).
#pragma once

#include <slipstream/strategy/registry.h>

#include <string>
#include <vector>

namespace slipstream {

// Returns the exit code: 0 done, 2 usage or configuration, 3 data, 4 peers or network, 70 our bug, 130 interrupted.
// `program` is the command that starts this program again as a local worker; by default its own file.
int run_cli(int argc, char** argv, const Registry& registry, std::vector<std::string> program = {});

}  // namespace slipstream
