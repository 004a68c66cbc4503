// SPDX-License-Identifier: Apache-2.0
#include "watch/dashboard.h"

#include <unistd.h>

#include <array>
#include <string_view>

#include "lab/net_namespace.h"
#include "report/report.h"
#include "watch/metrics.h"

namespace slipstream {
namespace {

constexpr std::chrono::milliseconds kFreshFor{250};

struct Route {
  std::string_view path, type;
};
constexpr std::array<Route, 3> kRoutes{{{"/", "text/html; charset=utf-8"},
                                        {"/data.json", "application/json"},
                                        {"/metrics", "text/plain; version=0.0.4; charset=utf-8"}}};

}  // namespace

Dashboard::Dashboard(const std::string& where, LiveRun& run, bool in_lab) : run_(run) {
  const auto place = HttpServer::Place::parse(where, kFlag);
  const auto serve = [&] {
    server_.emplace(place, kFlag, [this](std::string_view path) { return answer(std::string(path)); });
  };
  if (in_lab) {
    NetNamespace::of_process(getppid()).visit(serve);
  } else {
    serve();
  }
}

HttpAnswer Dashboard::answer(const std::string& path) {
  for (const Route& route : kRoutes) {
    if (route.path != path) continue;
    Kept& kept = kept_[path];
    const auto now = std::chrono::steady_clock::now();
    if (!kept.answer.body || now - kept.made > kFreshFor) {
      kept = {now, {200, std::string(route.type), std::make_shared<const std::string>(body_of(path))}};
    }
    return kept.answer;
  }
  return {.status = 404};
}

std::string Dashboard::body_of(const std::string& path) const {
  if (path == "/metrics") return prometheus_text(run_.figures());
  return path == "/" ? live_page(run_.run()) : live_data(run_.run());
}

}  // namespace slipstream
