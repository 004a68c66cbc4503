// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace slipstream {

// The text in lines of at most `width` characters, broken at spaces; all but the first begin with `indent` spaces. A
// longer word gets a line of its own. Line breaks in the text stay; the result does not end with one.
std::string wrap(std::string_view text, std::size_t width, std::size_t indent = 0);

}  // namespace slipstream
