// SPDX-License-Identifier: Apache-2.0
//
// Which of this machine's addresses the data goes through.
#pragma once

#include <string>

namespace slipstream {

// The address of this machine that packets to `host` would leave from. Nothing is sent.
std::string address_towards(const std::string& host, int port);

// The numeric address of a host name. Throws ConfigError where there is none.
std::string resolved(const std::string& host);

// Finds an interface's numeric address by its name, or its name by its address; empty if there is none.
std::string interface_match(const std::string& name, const std::string& address);

}  // namespace slipstream
