// SPDX-License-Identifier: Apache-2.0
//
// The head of an HTTP request, read as strictly as RFC 9112 asks: anything that is not exactly a head of HTTP/1.0 or
// 1.1 is refused. Bodies, and all fields but Host, are ignored.
#pragma once

#include <string>
#include <string_view>

namespace slipstream {

struct HttpRequest {
  int refused = 0;  // the status to answer with; 0: the head is well formed
  std::string method{}, path{}, host{};
};

// `head` ends with the empty line.
HttpRequest parse_request(std::string_view head);

// Does this name mean the machine itself? "localhost", or an address in digits, each with or without a port.
bool names_this_machine(std::string_view host);

}  // namespace slipstream
