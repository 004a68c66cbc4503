// SPDX-License-Identifier: Apache-2.0
//
// gather_text: every rank's text, of any length, on every rank, in rank order. Two gathers: the lengths, then the texts
// padded to the longest. For reports and agreements, not for training data.
#pragma once

#include <slipstream/fabric/fabric.h>

#include <string>
#include <vector>

namespace slipstream {

std::vector<std::string> gather_text(Fabric& net, const std::string& mine);

}  // namespace slipstream
