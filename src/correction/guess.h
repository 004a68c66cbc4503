// SPDX-License-Identifier: Apache-2.0
//
// Guess: what the global weights will be after an update that is still under way, from the last ones known and the own
// gradient (OSP's local-gradient-based parameter correction, LGP). A guess is always made from the true weights and
// thrown away when the truth arrives; nothing is ever un-added.
//
//   off        w = G
//   plain      w = G - lr (g + weight_decay G)
//   momentum   the server's whole rule, with its velocity V read off the weights' last movement: (G_old - G_new) / lr,
//              for Nesterov's form ((G_old - G_new) / lr + m V_old) / (1 + m)
#pragma once

#include <slipstream/base/state.h>
#include <slipstream/optim/optimizer.h>

#include <span>
#include <vector>

namespace slipstream {

class Guess {
 public:
  enum class Kind { kOff, kPlain, kMomentum };

  Guess() = default;
  // `groups` says where the optimizer's groups lie.
  Guess(Kind kind, const OptimizerOptions& optimizer, std::span<const float> weights, const GroupMap& groups = {});

  // The true weights of a range that begins at `offset`, after an update with rate lr. `guessed_next`: may a guess be
  // asked for before the range is learnt again? Where not, the passes for its velocity are saved.
  void learn(std::size_t offset, std::span<const float> weights, double lr, bool guessed_next = true);
  // out = the guess for the range of `grads` after an update with rate lr.
  void predict(std::size_t offset, std::span<const float> grads, double lr, std::span<float> out);

  std::span<const float> known() const { return global_; }  // G
  void visit(StateVisitor& v);

 private:
  static constexpr std::size_t kPiece = 2048;  // floats
  template <typename Rule>
  void by_piece(std::size_t offset, std::size_t count, const Rule& rule) const;

  Kind kind_ = Kind::kOff;
  OptimizerOptions optimizer_;
  GroupMap groups_;
  std::vector<float> global_, velocity_;
  std::vector<float> scratch_;  // of a piece
};

}  // namespace slipstream
