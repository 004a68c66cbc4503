// SPDX-License-Identifier: Apache-2.0
//
// Toy tasks: workloads with real gradients in plain C++, for simulations and tests. A task is a constant: a gradient is
// a function of (weights, rank, step) alone, so one task serves all ranks, and a run repeats bit for bit.
//
//   QuadraticTask  loss = Σ_j A_j/2 (w_j - b_j)²  with a target b of each rank's own; noise on the gradient
//   MlpTask        a classifier with one hidden layer on synthetic clusters; a fresh batch per rank and step
#pragma once

#include <slipstream/model/flat_model.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace slipstream {

class ToyTask {
 public:
  virtual ~ToyTask() = default;

  virtual std::vector<Parameter> parameters() const = 0;
  virtual void init(std::span<float> weights, std::uint64_t seed) const = 0;

  // Writes the gradient of rank's batch of step t; returns the loss.
  virtual double gradient(std::span<const float> weights, std::span<float> grads, int rank, std::int64_t t) const = 0;
};

struct QuadraticOptions {
  std::vector<std::size_t> layers = {3, 1, 0, 3};  // sizes; 0 and 1 are allowed
  std::uint64_t seed = 1;
  double noise = 0.05;     // deviation of the gradient's noise
  bool same_data = false;  // all ranks get rank 0's target and noise
};

class QuadraticTask final : public ToyTask {
 public:
  explicit QuadraticTask(const QuadraticOptions& options = {});

  std::vector<Parameter> parameters() const override;
  void init(std::span<float> weights, std::uint64_t seed) const override;
  double gradient(std::span<const float> weights, std::span<float> grads, int rank, std::int64_t t) const override;

  double curvature(std::size_t j) const;
  double target(int rank, std::size_t j) const;

 private:
  QuadraticOptions options_;
  std::size_t count_ = 0;
};

struct MlpOptions {
  std::size_t inputs = 8;
  std::size_t hidden = 16;
  std::size_t classes = 4;
  std::size_t batch = 16;
  std::uint64_t seed = 1;
  double spread = 0.5;  // of a cluster; its centre lies about sqrt(inputs) from the origin
  bool same_data = false;
};

// fc1 (tanh), fc2 (softmax); the loss is the batch's mean cross entropy.
class MlpTask final : public ToyTask {
 public:
  explicit MlpTask(const MlpOptions& options = {});  // throws ConfigError for an empty dimension

  std::vector<Parameter> parameters() const override;
  void init(std::span<float> weights, std::uint64_t seed) const override;
  double gradient(std::span<const float> weights, std::span<float> grads, int rank, std::int64_t t) const override;

 private:
  MlpOptions options_;
  std::vector<double> centres_;  // classes × inputs
};

}  // namespace slipstream
