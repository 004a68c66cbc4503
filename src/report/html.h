// SPDX-License-Identifier: Apache-2.0
//
// Text for a page: whatever a run contains (names, news, reasons) becomes text there, never markup or script. A value
// that is not finite is a dash.
#pragma once

#include <string>
#include <string_view>

namespace slipstream {

// For the content of elements and for attribute values in double quotes.
std::string escape_html(std::string_view text);

// JSON for use inside <script type="application/json">: no '<' can end that element.
std::string escape_script_json(std::string json);

std::string fixed_text(double value, int digits);  // "12.50"
std::string bytes_text(double bytes);              // "6.65 MB"
std::string percent_text(double share);            // "87 %" of 0.874

}  // namespace slipstream
