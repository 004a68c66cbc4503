// SPDX-License-Identifier: Apache-2.0
//
// What does Slipstream cost one worker alone? The same model, data and optimizer in a bare libtorch loop and in a
// Session, alternating step by step in one process; prints the ratio of the median step times. And in a Session that
// stages (gradients copied in, weights copied out): what that adds, in memcpys of the model.
//
//   overhead_bench [MODEL…] [--steps N]        default: cnn mlp, 200 steps of each
#include <slipstream/base/clock.h>
#include <slipstream/runtime/session.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fabric/mesh_fabric.h"
#include "task/torch_task.h"

namespace {

using namespace slipstream;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void measure(const std::string& model, std::int64_t steps) {
  constexpr std::int64_t kWarmup = 10;
  TaskOptions options;
  options.model = model;
  const auto bare = make_task(options, 0, 1);
  const auto ours = make_task(options, 0, 1), through_masters = make_task(options, 0, 1);
  torch::optim::SGD sgd(bare->module().parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  MeshFabric alone{Rendezvous{}}, alone_too{Rendezvous{}};
  Session session(alone, ours->module(), {}), staged(alone_too, through_masters->module(), {.stage = true});
  std::vector<float> from(session.model().count(), 1.0F), to(from);

  const SteadyClock clock;
  std::vector<double> bare_seconds, our_seconds, staged_seconds, copy_seconds;
  double bare_loss = 0, our_loss = 0;
  for (std::int64_t t = 0; t < steps + kWarmup; ++t) {
    const Position at{0, t % bare->sampler().steps_per_epoch() * bare->samples_per_step()};
    const double t0 = clock.now();
    {
      sgd.zero_grad();
      auto loss = bare->loss(at, 0);
      loss.backward();
      sgd.step();
      bare_loss = loss.item<double>();
    }
    const double t1 = clock.now();
    {
      auto loss = ours->loss(at, 0);
      loss.backward();
      our_loss = loss.item<double>();
      session.step(our_loss);
    }
    const double t2 = clock.now();
    {
      auto loss = through_masters->loss(at, 0);
      loss.backward();
      staged.step(loss.item<double>());
    }
    const double t3 = clock.now();
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    from[0] += to[to.size() - 1];  // it counts
    const double t4 = clock.now();
    if (t < kWarmup) continue;
    staged_seconds.push_back(t3 - t2);
    copy_seconds.push_back(t4 - t3);
    bare_seconds.push_back(t1 - t0);
    our_seconds.push_back(t2 - t1);
  }
  const double b = median(bare_seconds), o = median(our_seconds), s = median(staged_seconds);
  std::printf("| %s | %.2f | %.2f | %.4f | %.4f / %.4f | %.2f | %.1f |\n", model.c_str(), 1e3 * b, 1e3 * o, o / b,
              bare_loss, our_loss, 1e3 * s, (s - o) / median(copy_seconds));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> models;
  std::int64_t steps = 200;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--steps" && i + 1 < argc) {
      steps = std::max(1L, std::atol(argv[++i]));
    } else {
      models.emplace_back(argv[i]);
    }
  }
  if (models.empty()) models = {"cnn", "mlp"};
  std::printf("one worker, batch 64, %ld steps of each kind in turn\n\n", static_cast<long>(steps));
  std::printf(
      "| model | bare libtorch ms | slipstream ms | ratio | last loss, bare / ours | staged ms | added, in memcpys of "
      "the "
      "model |\n|---|---:|---:|---:|---:|---:|---:|\n");
  for (const auto& model : models) measure(model, steps);
  return 0;
}
