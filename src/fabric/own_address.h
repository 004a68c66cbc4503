// SPDX-License-Identifier: Apache-2.0
//
// Which of this machine's addresses the data goes through.
#pragma once

#include <string>

namespace slipstream {

// The address of ours that packets to `host` would leave from. Nothing is sent.
std::string address_towards(const std::string& host, int port);

// The numeric address of a host name. Throws ConfigError where there is none.
std::string resolved(const std::string& host);

// "name of interface" <-> "numeric address", whichever way is asked for; empty where there is none.
std::string interface_match(const std::string& name, const std::string& address);

}  // namespace slipstream
