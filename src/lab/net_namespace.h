// SPDX-License-Identifier: Apache-2.0
//
// NetNamespace: a network of its own inside this machine (interfaces, addresses, routes, ports), held by one
// descriptor. Invariant: it has no name anywhere. The kernel removes it with everything in it when the last descriptor
// and the last process inside are gone, however they went: nothing can be left behind. Each thread is in one namespace;
// except for enter(), every function here leaves the calling thread where it was. Sets nothing up: a new namespace has
// only a loopback interface, and that is down.
#pragma once

#include <functional>
#include <string>

namespace slipstream {

class NetNamespace {
 public:
  NetNamespace();                 // a new one; throws ConfigError where the process lacks the right to make it
  static NetNamespace current();  // the one this thread is in
  static NetNamespace of_process(int pid);
  static bool permitted() noexcept;  // has this process CAP_NET_ADMIN and CAP_SYS_ADMIN, which all of this needs?
  ~NetNamespace();
  NetNamespace(NetNamespace&& other) noexcept;
  NetNamespace(const NetNamespace&) = delete;
  NetNamespace& operator=(const NetNamespace&) = delete;

  // Moves the calling thread into it, for good. Allowed between fork() and exec().
  void enter() const;
  // Runs f on the calling thread inside it and comes back. Sockets and threads that f makes stay inside.
  void visit(const std::function<void()>& f) const;
  // A path by which other programs can open it while this object lives: what `ip … netns PATH` takes.
  std::string path() const;

  // Runs iproute2's `tool` ("ip", "tc") inside, with one command a line. Throws ConfigError with the first command that
  // failed and what the tool printed, or the name of the Debian package if there is no such tool.
  void batch(const std::string& tool, const std::string& commands) const;
  // Runs one command inside and returns what it printed. Throws like batch().
  std::string output(const std::string& tool, const std::string& command) const;

 private:
  explicit NetNamespace(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace slipstream
