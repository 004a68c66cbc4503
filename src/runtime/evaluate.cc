// SPDX-License-Identifier: Apache-2.0
#include "runtime/evaluate.h"

#include <fmt/format.h>

#include <cstdio>

#include "runtime/model_file.h"
#include "task/torch_task.h"
#include "watch/summary.h"

namespace slipstream {

int run_eval(const std::string& where, const TaskOptions& options, bool json) {
  const auto task = make_task(options, 0, 1);
  load_model(where, task->module());
  const Evaluation result = task->evaluate(0, 1);
  const std::string metric = task->metric();
  const double value = task->judged(result);
  const std::string text = json ? fmt::format(R"({{"{}":{:.6g},"test_loss_mean":{:.6g},"samples":{}}})", metric, value,
                                              result.mean_loss(), result.samples)
                                : fmt::format("{} over {} samples, mean loss {:.4f}", metric_text(metric, value),
                                              result.samples, result.mean_loss());
  std::printf("%s\n", text.c_str());
  return 0;
}

}  // namespace slipstream
