// SPDX-License-Identifier: Apache-2.0
#include "web/http_request.h"

#include <algorithm>
#include <asio/ip/address.hpp>

namespace slipstream {
namespace {

constexpr int kBadRequest = 400, kNotThisVersion = 505;

bool is_token(std::string_view text) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return (c < 128 && std::isalnum(c) != 0) || kOthers.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 32 && c < 127; });
}

std::string lower(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(), [](unsigned char c) { return std::tolower(c); });
  return made;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Takes one line off `rest`, without its end; false if there is none.
bool take_line(std::string_view& rest, std::string_view& line) {
  const std::size_t end = rest.find("\r\n");
  if (end == std::string_view::npos) return false;
  line = rest.substr(0, end);
  rest.remove_prefix(end + 2);
  return true;
}

}  // namespace

HttpRequest parse_request(std::string_view head) {
  const HttpRequest bad{.refused = kBadRequest};
  std::string_view line;
  if (!take_line(head, line)) return bad;
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return bad;
  const std::string_view method = line.substr(0, first), target = line.substr(first + 1, last - first - 1),
                         version = line.substr(last + 1);
  if (!is_token(method) || target.empty() || !is_printable(target) || !version.starts_with("HTTP/")) return bad;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return {.refused = kNotThisVersion};

  HttpRequest request{.method = std::string(method), .path = std::string(target.substr(0, target.find('?')))};
  int hosts = 0;
  while (take_line(head, line) && !line.empty()) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return bad;
    if (lower(line.substr(0, colon)) != "host") continue;
    request.host = lower(trimmed(line.substr(colon + 1)));
    ++hosts;
  }
  if (hosts > 1 || (hosts == 0 && version == "HTTP/1.1")) return bad;
  return request;
}

bool names_this_machine(std::string_view host) {
  const bool bracketed = host.starts_with('[');
  const std::size_t end = bracketed ? host.find(']') : std::min(host.find(':'), host.size());
  if (end == std::string_view::npos) return false;
  const std::string_view name = bracketed ? host.substr(1, end - 1) : host.substr(0, end);
  if (name == "localhost") return true;
  asio::error_code error;
  asio::ip::make_address(std::string(name), error);
  return !error;
}

}  // namespace slipstream
