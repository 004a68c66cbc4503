// SPDX-License-Identifier: Apache-2.0
//
// sparse_payload: a Sparse as bytes on the wire, drawn in docs/wire-format.md: a header of 32 bytes, the indices, the
// values. Ascending indices travel as differences of one to four bytes (streamvbyte) unless plain ones are smaller.
//
// Invariant: what decodes is what was encoded. Every byte is covered by a checksum and every field is checked besides,
// so that bytes from another version, another bucket or a broken buffer become a FabricError, never a wrong sum; and
// nothing is added before all of a payload has been checked. The checksum is no defence against a forger, but even a
// forged payload only ever touches elements inside the dimension.
//
// A record says its own length. Zeros after it are padding: gathers need buffers of one size on all ranks.
//
// Formats shorter than fp32 round values (codec/value_format.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/sparse.h"
#include "codec/value_format.h"

namespace slipstream::sparse_payload {

inline constexpr std::size_t kHeaderBytes = 32;

// Upper limit of the bytes for `count` entries of a vector of `dimension` elements, for any indices, so that all ranks
// know it without asking. Close to the real size, since sparse indices cannot all be far apart.
std::size_t max_bytes(std::size_t count, std::size_t dimension, ValueFormat format);

// Replaces `out` by the record; its capacity is used again.
void encode(const Sparse& entries, std::uint32_t dimension, ValueFormat format, std::vector<std::byte>& out);

// Appends zeros up to `bytes`; a record longer than that is an error.
void pad_to(std::vector<std::byte>& record, std::size_t bytes);

// The entries of a record, padded or not. A malformed one, or one for another dimension, throws FabricError.
Sparse decode(std::span<const std::byte> payload, std::uint32_t expected_dimension);

// out[index] = out[index] + scale * value for every entry; the dimension must be out.size(). Throws as decode does,
// and then leaves `out` as it was.
void add_to(std::span<const std::byte> payload, std::span<float> out, float scale);

}  // namespace slipstream::sparse_payload
