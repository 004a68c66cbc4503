// SPDX-License-Identifier: Apache-2.0
//
// Hub: where the processes of a job find each other. It listens at one address, lets in processes that know the secret,
// and once they are a group (gathering.h) tells everybody where the others listen. It lives in the supervisor of a
// local job, which then also shows life and announces failures through it; otherwise in rank 0, until all have joined
// or, in an elastic job, until the end.
//
// Strangers change nothing: a connection that does not authenticate within seconds is dropped, and only a limited
// number may try at a time. Thread-safe; has one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "wire/gathering.h"
#include "wire/secret.h"

namespace slipstream {

struct HubOptions {
  std::string address = "127.0.0.1";  // to listen on
  int port = 0;                       // 0: any free one
  int ranks = 1;
  int workers = 1;  // ranks from this one on are servers; only for names
  Key key{};
  bool encrypted = false;
  double timeout_seconds = 0;                            // as in MeshOptions
  double join_timeout_seconds = 60;                      // how long to wait for all ranks to join
  std::function<void(const std::string&)> on_failure{};  // failures that the hub found, for the user; on its thread
  bool tells = false;                                    // print on standard error which ranks it waits for
  Elastic elastic{};
  std::function<void(int seat)> on_silent{};  // a process of an elastic job shows no life; the others go on without it
};

class Hub {
 public:
  explicit Hub(const HubOptions& options);  // ConfigError where it cannot listen
  ~Hub();                                   // leaves in good order: processes that have joined do not miss it
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  int port() const;
  // Ends every rank, also one that joins later, with this text. Only the first announcement counts.
  void announce(const std::string& text);
  // Elastic jobs: the process with this seat has ended. Its connections no longer count; if it was in the current
  // group, that group ends with this text.
  void process_is_gone(int seat, const std::string& text);
  std::vector<int> seats_that_hold() const;  // seats of the current group that hold the training, and its servers
  // The job has ended well: processes that wait to join, now or later, are told so.
  void job_is_over();

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace slipstream
