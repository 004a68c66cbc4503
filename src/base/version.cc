// SPDX-License-Identifier: Apache-2.0
#include <slipstream/base/version.h>

namespace slipstream {

const char* version() { return SLIPSTREAM_VERSION; }

}  // namespace slipstream
