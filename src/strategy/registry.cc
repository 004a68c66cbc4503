// SPDX-License-Identifier: Apache-2.0
#include <slipstream/base/error.h>
#include <slipstream/strategy/registry.h>

#include "strategy/auto_sgd.h"
#include "strategy/card.h"
#include "strategy/dasgd.h"
#include "strategy/diloco.h"
#include "strategy/gs_sgd.h"
#include "strategy/gtopk_sgd.h"
#include "strategy/lags_sgd.h"
#include "strategy/local_sgd.h"
#include "strategy/osp.h"
#include "strategy/power_sgd.h"
#include "strategy/server_sgd.h"
#include "strategy/sketched_sgd.h"
#include "strategy/ssd_sgd.h"
#include "strategy/sync_sgd.h"
#include "strategy/topk_sgd.h"

namespace slipstream {

Registry Registry::builtin() {
  Registry registry;
  registry.add(card_info<SyncSgd>("ssgd"));
  registry.add(card_info<LocalSgd>("local"));
  registry.add(card_info<TopkSgd>("topk"));
  registry.add(card_info<LagsSgd>("lags"));
  registry.add(card_info<GtopkSgd>("gtopk"));
  registry.add(card_info<GsSgd>("gs"));
  registry.add(card_info<SketchedSgd>("sketched"));
  registry.add(card_info<PowerSgd>("powersgd"));
  registry.add(card_info<DaSgd>("dasgd"));
  registry.add(card_info<DaSgd>("cocod", DaSgdOptions::cocod()));
  registry.add(card_info<Diloco>("overlap-local", DilocoOptions::overlap_local()));
  registry.add(card_info<Diloco>("diloco"));
  registry.add(card_info<Diloco>("streaming-diloco", DilocoOptions::streaming()));
  registry.add(card_info<Bsp>("bsp"));
  registry.add(card_info<SsdSgd>("ssd"));
  registry.add(card_info<Osp>("osp"));
  registry.add(card_info<Asgd>("asgd"));
  registry.add(card_info<Ssp>("ssp"));
  registry.add(card_info<R2sp>("r2sp"));
  registry.add(card_info<AutoSgd>("auto"));
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
