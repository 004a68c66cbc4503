// SPDX-License-Identifier: Apache-2.0
#include "fabric/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <slipstream/base/error.h>
#include <sys/socket.h>
#include <unistd.h>

namespace slipstream {

std::string resolved(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) {
    fail<ConfigError>("the host name '{}' of --master-addr cannot be resolved", host);
  }
  char text[NI_MAXHOST] = "";
  getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  freeaddrinfo(found);
  return text;
}

std::string address_towards(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    fail<ConfigError>("the host name '{}' of --master-addr cannot be resolved", host);
  }
  std::string address = "127.0.0.1";
  const int fd = socket(found->ai_family, SOCK_DGRAM, 0);
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0) {
    char text[NI_MAXHOST];
    if (getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
      address = text;
    }
  }
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return address;
}

std::string interface_match(const std::string& name, const std::string& address) {
  std::string match;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return match;
  for (const ifaddrs* i = all; i != nullptr && match.empty(); i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(i->ifa_addr)->sin_addr, text, sizeof text);
    if (!name.empty() && name == i->ifa_name) match = text;
    if (!address.empty() && address == text) match = i->ifa_name;
  }
  freeifaddrs(all);
  return match;
}

}  // namespace slipstream
