// SPDX-License-Identifier: Apache-2.0
//
// Dashboard: the page of `slipstream report` about a run in progress (/), the data its script asks for (/data.json),
// and figures for Prometheus (/metrics), served from this process and read-only (web/http_server.h). Each is made anew
// at most a few times a second, on the server's thread, however many clients ask.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "watch/live_run.h"
#include "web/http_server.h"

namespace slipstream {

class Dashboard {
 public:
  static constexpr const char* kFlag = "--dashboard";

  // `where` as in HttpServer::Place. `in_lab`: this process is a host of a lab; the page is served outside of it, in
  // its parent's network. ConfigError where that port is in use. The run must outlive the dashboard.
  Dashboard(const std::string& where, LiveRun& run, bool in_lab);

  std::string url() const { return server_->url(); }

 private:
  struct Kept {
    std::chrono::steady_clock::time_point made;
    HttpAnswer answer;
  };
  HttpAnswer answer(const std::string& path);
  std::string body_of(const std::string& path) const;

  LiveRun& run_;
  std::map<std::string, Kept> kept_;  // by path; server's thread only
  std::optional<HttpServer> server_;  // last: its thread calls answer()
};

}  // namespace slipstream
