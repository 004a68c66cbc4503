// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace slipstream {

// This library's version, such as "0.1.0"; must be the same on all ranks of a job.
const char* version();

}  // namespace slipstream
