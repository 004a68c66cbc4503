// SPDX-License-Identifier: Apache-2.0
//
// StepRecord is made by the engine; this name of its header is the older one.
#pragma once

#include <slipstream/engine/step_record.h>
