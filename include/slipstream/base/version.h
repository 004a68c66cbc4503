// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace slipstream {

// Of this library, such as "0.1.0". Ranks of one job must have the same.
const char* version();

}  // namespace slipstream
