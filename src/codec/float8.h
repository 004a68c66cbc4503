// SPDX-License-Identifier: Apache-2.0
//
// float8: a list of floats as one byte each and a common factor, a power of two. A byte is a sign, five bits of
// exponent and two of significand: the error is at most 1/8 of a value down to eight orders of magnitude below the
// list's largest; smaller values lose digits and finally become 0. For values that are compared, not applied, such as a
// sketch's cells. Rounding is to nearest even and the same on every machine.
//
//   bytes   0…3 the factor, a float   4… a byte for each value, then zeros up to whole words
//
// Values must be finite.
#pragma once

#include <cstddef>
#include <span>

namespace slipstream {

inline std::size_t float8_bytes(std::size_t count) { return (4 + count + 3) / 4 * 4; }

// The records have float8_bytes(values.size()) bytes.
void float8_encode(std::span<const float> values, std::span<std::byte> record);
void float8_decode(std::span<const std::byte> record, std::span<float> values);

}  // namespace slipstream
