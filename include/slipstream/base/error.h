// SPDX-License-Identifier: Apache-2.0
//
// Errors. Four kinds, by who can fix the cause; each carries the exit code of the command line. Every message says what
// was wrong, where, and what to do.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace slipstream {

// A failed check: our bug. Also the base of the other kinds, so that one catch clause sees them all.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what), text_(what) {}
  const char* what() const noexcept override { return text_.c_str(); }
  void add(const std::string& where) { text_ += where; }  // appends what only a caller knows, such as the step
  virtual int exit_code() const { return 70; }

 private:
  std::string text_;
};

// The user can fix it: a flag, a key of the configuration, the environment.
class ConfigError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return 2; }
};

// A user's file is missing, truncated or malformed: names the file and the place in it.
class DataError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return 3; }
};

// A peer or the network: names the peer and the operation.
class FabricError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return 4; }
};

// A failure that another process found and announced to all; that process tells the user.
class AnnouncedError : public FabricError {
 public:
  using FabricError::FabricError;
};

// The supervisor is gone: each worker tells the user itself.
class OrphanedError : public FabricError {
 public:
  using FabricError::FabricError;
};

// The current group of an elastic job has failed; the job goes on in the next group.
class GroupFailed : public FabricError {
 public:
  using FabricError::FabricError;
};

// The group ends because a process waits to join; nobody was lost. Thrown on all ranks after the same step.
class GroupChanges : public GroupFailed {
 public:
  using GroupFailed::GroupFailed;
};

// This worker came too late: the others have finished the job.
class JobOver : public FabricError {
 public:
  using FabricError::FabricError;
  int exit_code() const override { return 0; }
};

// Training itself went wrong (the loss is not a number any more). The exit code is that of a bad configuration:
// the usual cure is a smaller learning rate.
class DivergedError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

// The user pressed Ctrl-C or the supervisor asked us to stop.
class Interrupted : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return 130; }
};

// Throws E with a formatted message.
template <typename E = Error, typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw E(fmt::format(text, std::forward<Args>(args)...));
}

// Checks an invariant of our own code. Check user input with fail<ConfigError>() and the like.
template <typename... Args>
void check(bool holds, fmt::format_string<Args...> text, Args&&... args) {
  if (!holds) fail<Error>(text, std::forward<Args>(args)...);
}

}  // namespace slipstream
