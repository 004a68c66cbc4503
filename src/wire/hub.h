// SPDX-License-Identifier: Apache-2.0
//
// Hub: where the processes of a job find each other. It listens at one address, lets in who knows the secret, and once
// they are a group (gathering.h) tells everybody where the others listen. It lives in the supervisor of a local job,
// which then also shows life and announces failures through it, else in rank 0: until all have joined or, of an elastic
// job, to its end.
//
// Strangers change nothing: who does not authenticate within seconds is dropped, and only so many may try at a time.
// Thread-safe; one thread of its own.
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
  int workers = 1;  // ranks from there on are servers: for names
  Key key{};
  bool encrypted = false;
  double timeout_seconds = 0;                            // as of MeshOptions
  double join_timeout_seconds = 60;                      // for all ranks to appear
  std::function<void(const std::string&)> on_failure{};  // what the hub itself found, for the user; on its thread
  bool tells = false;                                    // says on standard error whom it waits for
  Elastic elastic{};
  std::function<void(int seat)> on_silent{};  // a process of an elastic job shows no life: the others go on without it
};

class Hub {
 public:
  explicit Hub(const HubOptions& options);  // ConfigError where it cannot listen there
  ~Hub();                                   // in good order: those who joined do not miss it
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  int port() const;
  // Every rank, also one that joins later, ends with this text. The first announcement stands.
  void announce(const std::string& text);
  // Elastic jobs: the process with this seat has ended. Its connections count no more; the present group ends with this
  // text if it was in it.
  void process_is_gone(int seat, const std::string& text);
  std::vector<int> seats_that_hold() const;  // the training, in the present group; and its servers
  // The job has ended well: those who wait to join, now or later, are told.
  void job_is_over();

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace slipstream
