// SPDX-License-Identifier: Apache-2.0
#include "runtime/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace slipstream {

Progress::Progress(bool terminal, std::int64_t total_steps, double samples_per_step)
    : terminal_(terminal), total_steps_(total_steps), samples_per_step_(samples_per_step), began_(clock_.now()) {
  last_printed_ = began_;
}

void Progress::step(const StepRecord& record) {
  constexpr double kMemory = 0.9;
  loss_ = record.t == 0 ? record.loss : kMemory * loss_ + (1 - kMemory) * record.loss;
  exposed_seconds_ += record.exposed_seconds;
  step_seconds_ += record.seconds;
  const double now = clock_.now();
  const bool last = record.t + 1 == total_steps_;
  if (!last && now - last_printed_ < (terminal_ ? 0.1 : 5.0)) return;
  last_printed_ = now;
  const double share = step_seconds_ > 0 ? exposed_seconds_ / step_seconds_ : 0;
  const std::string text = line(record.t + 1, loss_, now - began_, share);
  std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", text.c_str());
  std::fflush(stderr);
}

void Progress::say(const std::string& line) { std::fprintf(stderr, terminal_ ? "\r\033[K%s\n" : "%s\n", line.c_str()); }

void Progress::finish() {
  if (terminal_ && last_printed_ > began_) std::fputc('\n', stderr);
}

std::string Progress::line(std::int64_t done, double loss, double elapsed_seconds, double exposed_share) const {
  const double per_step = elapsed_seconds / static_cast<double>(std::max<std::int64_t>(1, done));
  const double left = per_step * static_cast<double>(total_steps_ - done);
  std::string bar;
  if (terminal_) {
    constexpr int kWidth = 24;
    const int filled = static_cast<int>(kWidth * done / std::max<std::int64_t>(1, total_steps_));
    for (int i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
    bar += ' ';
  }
  return fmt::format("{}step {}/{}  loss {:.4f}  {:.0f} samples/s  exposed {:.0f} %  {:.0f}:{:02.0f} left", bar, done,
                     total_steps_, loss, samples_per_step_ / per_step, 100 * exposed_share,
                     static_cast<double>(static_cast<std::int64_t>(left) / 60),
                     static_cast<double>(static_cast<std::int64_t>(left) % 60));
}

}  // namespace slipstream
