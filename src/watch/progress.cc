// SPDX-License-Identifier: Apache-2.0
#include "watch/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace slipstream {

namespace {

// Asked for every line, because a window may change its size.
std::size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

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
  const std::string text = line(record.t + 1, loss_, now - began_, share, terminal_columns());
  std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", text.c_str());
  std::fflush(stderr);
}

void Progress::say(const std::string& line) { std::fprintf(stderr, terminal_ ? "\r\033[K%s\n" : "%s\n", line.c_str()); }

void Progress::finish() {
  if (terminal_ && last_printed_ > began_) std::fputc('\n', stderr);
}

std::string Progress::line(std::int64_t done, double loss, double elapsed_seconds, double waiting_share,
                           std::size_t columns) const {
  const double per_step = elapsed_seconds / static_cast<double>(std::max<std::int64_t>(1, done));
  const double left = per_step * static_cast<double>(total_steps_ - done);
  const auto seconds = static_cast<std::int64_t>(left);
  const std::string text =
      fmt::format("step {}/{}  mean loss {:.4f}  {:.0f} samples/s  waiting {:.0f} %  {}:{:02} left", done, total_steps_,
                  loss, samples_per_step_ / per_step, 100 * waiting_share, seconds / 60, seconds % 60);
  if (!terminal_) return text;
  const std::size_t room = columns - 1;  // a character in the last column would start a new line
  if (text.size() >= room) return text.substr(0, room);
  constexpr std::size_t kLongest = 24, kShortest = 6;
  const std::size_t width = std::min(kLongest, room - text.size() - 1);
  if (width < kShortest) return text;
  const std::size_t filled =
      width * static_cast<std::size_t>(done) / static_cast<std::size_t>(std::max<std::int64_t>(1, total_steps_));
  std::string bar;
  for (std::size_t i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
  return bar + ' ' + text;
}

}  // namespace slipstream
