// SPDX-License-Identifier: Apache-2.0
#include <slipstream/base/error.h>
#include <slipstream/strategy/registry.h>

#include "strategy/asgd.h"
#include "strategy/bsp.h"
#include "strategy/dasgd.h"
#include "strategy/diloco.h"
#include "strategy/gs_sgd.h"
#include "strategy/gtopk_sgd.h"
#include "strategy/lags_sgd.h"
#include "strategy/local_sgd.h"
#include "strategy/osp.h"
#include "strategy/power_sgd.h"
#include "strategy/r2sp.h"
#include "strategy/sketched_sgd.h"
#include "strategy/ssd_sgd.h"
#include "strategy/ssp.h"
#include "strategy/sync_sgd.h"
#include "strategy/topk_sgd.h"

namespace slipstream {

Registry Registry::builtin() {
  Registry registry;
  registry.add(SyncSgd::info());
  registry.add(LocalSgd::info());
  registry.add(TopkSgd::info());
  registry.add(LagsSgd::info());
  registry.add(GtopkSgd::info());
  registry.add(GsSgd::info());
  registry.add(SketchedSgd::info());
  registry.add(PowerSgd::info());
  registry.add(DaSgd::info());
  registry.add(DaSgd::cocod_info());
  registry.add(Diloco::overlap_local_info());
  registry.add(Diloco::info());
  registry.add(Diloco::streaming_info());
  registry.add(Bsp::info());
  registry.add(SsdSgd::info());
  registry.add(Osp::info());
  registry.add(Asgd::info());
  registry.add(Ssp::info());
  registry.add(R2sp::info());
  return registry;
}

void Registry::add(StrategyInfo info) {
  for (const StrategyInfo& other : infos_) {
    check(other.name != info.name, "strategy {} is registered twice", info.name);
  }
  infos_.push_back(std::move(info));
}

const StrategyInfo& Registry::find(std::string_view name) const {
  std::vector<std::string> names;
  for (const StrategyInfo& info : infos_) {
    if (info.name == name) return info;
    names.push_back(info.name);
  }
  const std::string near = nearest(name, names);
  fail<ConfigError>("there is no strategy '{}'{}; `slipstream list` shows all", name,
                    near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near));
}

StrategyInfo::Configured Registry::configure(std::string_view name, const std::vector<std::string>& set) const {
  auto configured = find(name).configure();
  for (const std::string& pair : set) configured.options.set_pair(pair);
  return configured;
}

}  // namespace slipstream
