// SPDX-License-Identifier: Apache-2.0
//
// The former name of slipstream/engine/step_record.h.
#pragma once

#include <slipstream/engine/step_record.h>
