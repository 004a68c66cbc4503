// SPDX-License-Identifier: Apache-2.0
//
// run_eval: `slipstream eval`, a trained model on test data, in this process alone. No torch in this header.
#pragma once

#include <string>

#include "task/task_options.h"

namespace slipstream {

// Prints the result, as JSON where asked to; returns the exit code. `where`: see runtime/model_file.h.
int run_eval(const std::string& where, const TaskOptions& options, bool json);

}  // namespace slipstream
