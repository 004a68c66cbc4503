// SPDX-License-Identifier: Apache-2.0
//
// Your own libtorch training loop, made distributed by the lines marked "<- slipstream". The task: tell the two arms of
// a spiral apart, from points that every worker draws for itself.
//
//   example_plain_loop                        alone
//   torchrun --no-python --nproc-per-node 3 example_plain_loop
//   mpirun -n 3 example_plain_loop            or srun; then with 500 steps of local SGD:
//   mpirun -n 3 example_plain_loop 500 local
#include <slipstream/base/error.h>
#include <slipstream/runtime/session.h>  // <- slipstream

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace {

struct Batch {
  torch::Tensor points, arms;
};

// Points on two spiral arms, half a turn apart, and which arm each of them is on.
Batch draw(std::int64_t count, torch::Generator& random) {
  const auto arms = torch::randint(0, 2, {count}, random, torch::kLong);
  const auto radius = torch::rand({count}, random) + 0.1;
  const auto angle = 6.0 * radius + M_PI * arms;
  return {torch::stack({radius * angle.cos(), radius * angle.sin()}, 1), arms};
}

void train(std::int64_t steps, const std::string& strategy) {
  const auto world = slipstream::join();  // <- slipstream: torchrun, mpirun, srun or alone
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(),   //
                            torch::nn::Linear(64, 64), torch::nn::ReLU(),  //
                            torch::nn::Linear(64, 2));
  slipstream::Session session(*world, *net, {.strategy = strategy, .optimizer = {.lr = 0.1}});  // <- slipstream

  auto random = torch::make_generator<torch::CPUGeneratorImpl>(1 + world->rank());  // <- slipstream: own samples
  for (std::int64_t t = 0; t < steps; ++t) {
    const Batch batch = draw(64, random);
    auto loss = torch::cross_entropy_loss(net->forward(batch.points), batch.arms);
    loss.backward();
    session.step(loss.item<double>());  // <- slipstream: in place of optimizer.step() and optimizer.zero_grad()
    if (world->rank() == 0 && (t + 1) % 50 == 0) std::printf("step %4ld  loss %.4f\n", t + 1, loss.item<double>());
  }
  session.finish();  // <- slipstream: now all workers hold the same weights

  const Batch test = draw(2000, random);
  const double right = net->forward(test.points).argmax(1).eq(test.arms).to(torch::kDouble).mean().item<double>();
  std::printf("worker %d of %d: %.1f %% of its test points are right\n", world->rank(), world->size(), 100 * right);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train(argc > 1 ? std::atoll(argv[1]) : 300, argc > 2 ? argv[2] : "ssgd");
    return 0;
  } catch (const slipstream::Error& error) {
    std::fprintf(stderr, "example_plain_loop: %s\n", error.what());
    return error.exit_code();
  }
}
