// SPDX-License-Identifier: Apache-2.0
#include "report/html.h"

#include <fmt/format.h>

#include <cmath>

namespace slipstream {

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string escape_script_json(std::string json) {
  std::string escaped;
  for (const char c : json) {
    if (c == '<') {
      escaped += "\\u003c";  // '<' occurs only in strings, where this means the same
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string fixed_text(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "–";
}

std::string percent_text(double share) { return std::isfinite(share) ? fmt::format("{:.0f} %", 100 * share) : "–"; }

std::string bytes_text(double bytes) {
  if (!std::isfinite(bytes)) return "–";
  if (bytes >= 1e6) return fmt::format("{:.3g} MB", bytes / 1e6);
  return bytes >= 1e3 ? fmt::format("{:.3g} kB", bytes / 1e3) : fmt::format("{:.0f} B", bytes);
}

}  // namespace slipstream
