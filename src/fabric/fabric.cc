// SPDX-License-Identifier: Apache-2.0
#include <slipstream/base/error.h>
#include <slipstream/fabric/fabric.h>

namespace slipstream {

Wire parse_wire(std::string_view name) {
  if (name == "fp32") return Wire::kFp32;
  if (name == "fp16") return Wire::kFp16;
  if (name == "bf16") return Wire::kBf16;
  fail<ConfigError>("the wire carries fp32, fp16 or bf16; not '{}'", name);
}

void Fabric::regroup() { fail<ConfigError>("the group of this job cannot change; start it with --elastic MIN:MAX"); }

}  // namespace slipstream
