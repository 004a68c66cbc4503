// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpointer.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "base/hash.h"
#include "topology/gather_text.h"

namespace slipstream {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

// A line for every entry: its hash, its kind and size, its name.
std::string digest_of(const StateArchive& state) {
  std::string text;
  for (const TensorView& tensor : state.tensors({})) {
    text += fmt::format("{:016x} {} {} {}\n", hash_bytes(tensor.data), to_text(tensor.dtype), tensor.data.size(),
                        tensor.name);
  }
  return text;
}

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.insert(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string name_in(const std::string& line) {
  std::size_t at = 0;
  for (int word = 0; word < 3; ++word) at = line.find(' ', at) + 1;
  return line.substr(at);
}

}  // namespace

CheckpointEvery CheckpointEvery::parse(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string unit(rest, end);
  const double unit_s = unit == "s" ? 1 : unit == "min" ? 60 : unit == "h" ? 3600 : 0;
  if (text.empty()) return {};
  if (error == std::errc() && number >= 0 && number <= 1e12) {
    if (unit.empty() && number == std::floor(number)) return {.steps = static_cast<std::int64_t>(number)};
    if (unit_s > 0 && number > 0) return {.seconds = number * unit_s};
  }
  fail<ConfigError>("'{}' is no interval; use a number of steps, such as 500, or a time, such as 90s, 10min or 2h",
                    text);
}

Checkpointer::Checkpointer(Fabric& net, Options options, CheckpointMeta job, std::int64_t first_step)
    : net_(net),
      options_(std::move(options)),
      job_(std::move(job)),
      saved_at_(first_step),
      began_s_(net.clock().now()),
      due_at_(kUnknown),
      all_(static_cast<std::size_t>(net.size())) {}

Checkpointer::~Checkpointer() { join(); }

void Checkpointer::after_step(std::int64_t done, const Snapshot& snapshot) {
  const std::int64_t since = done - saved_at_;
  if (since >= 2 * asked_at_ && (under_way_ || options_.every.seconds > 0)) {
    if (asking_) heed();
    if (under_way_ || options_.every.seconds > 0) ask(done);
  }
  if (due(done)) save(done, snapshot);
}

bool Checkpointer::due(std::int64_t done) const {
  return options_.every.steps > 0 ? done % options_.every.steps == 0 : done >= due_at_;
}

void Checkpointer::save(std::int64_t done, const Snapshot& snapshot) {
  finish();
  if (asking_) heed();  // its reports are older than this checkpoint
  saved_at_ = done;
  began_s_ = net_.clock().now();
  options_.seconds_before = 0;
  due_at_ = kUnknown;
  asked_at_ = 0;
  error_.clear();
  StateArchive own = std::move(copy_), shared;
  own.forget();
  snapshot(own);
  if (net_.rank() == 0) {  // before the gather, because the others write after it
    try {
      begin_checkpoint(options_.folder, done);
    } catch (const std::exception& e) {
      error_ = e.what();
    }
  }
  const auto digests = gather_text(net_, digest_of(own));
  std::vector<std::set<std::string>> others;
  for (std::size_t r = 1; r < digests.size(); ++r) others.push_back(lines_of(digests[r]));
  for (const std::string& line : lines_of(digests[0])) {
    if (!std::all_of(others.begin(), others.end(), [&](const auto& lines) { return lines.contains(line); })) continue;
    shared.take(own, name_in(line));
  }
  open_ = under_way_ = true;
  failed_ = false;
  stage_ = Stage::kWriting;
  thread_ = std::thread([this, shared = std::move(shared), own = std::move(own)]() mutable { write(shared, own); });
}

void Checkpointer::write(StateArchive& shared, StateArchive& own) {
  try {
    if (!error_.empty()) throw ConfigError(error_);
    const auto shapes = job_.shapes();
    if (net_.rank() == 0) shared_sum_ = write_safetensors(target() / shared_file(), shared.tensors(shapes));
    own_sum_ = write_safetensors(target() / rank_file(net_.rank()), own.tensors(shapes));
    stage_.store(Stage::kDurable, std::memory_order_release);
  } catch (const std::exception& e) {
    error_ = e.what();
    stage_.store(Stage::kFailed, std::memory_order_release);
  }
  while (!shared.entries().empty()) own.take(shared, std::string(shared.entries().begin()->first));
  copy_ = std::move(own);
}

Checkpointer::Report Checkpointer::report() const {
  Report mine{net_.clock().now() - began_s_, options_.seconds_before, stage_.load(std::memory_order_acquire), {}};
  if (mine.stage == Stage::kDurable) mine.sum = own_sum_;
  return mine;
}

// Gathers reports of all ranks, to be read by heed() later.
void Checkpointer::ask(std::int64_t done) {
  asked_at_ = done - saved_at_;
  mine_ = report();
  gather_ = net_.gather(std::as_bytes(std::span(&mine_, 1)), std::as_writable_bytes(std::span(all_)));
  asking_ = true;
}

void Checkpointer::heed() {
  gather_.wait();
  asking_ = false;
  if (options_.every.seconds > 0 && all_[0].seconds > 0) {
    const auto before = std::max_element(all_.begin(), all_.end(),
                                         [](const Report& a, const Report& b) { return a.before < b.before; });
    const double left = options_.every.seconds - before->before;
    const double steps = left * static_cast<double>(asked_at_) / all_[0].seconds;
    due_at_ = saved_at_ + static_cast<std::int64_t>(std::clamp(std::ceil(steps), 1.0, 1e15));
  }
  if (!under_way_) return;
  const auto at = [](Stage stage) { return [stage](const Report& r) { return r.stage == stage; }; };
  failed_ = std::any_of(all_.begin(), all_.end(), at(Stage::kFailed));
  if (!failed_ && !std::all_of(all_.begin(), all_.end(), at(Stage::kDurable))) return;
  under_way_ = false;
  join();  // it has ended, except where another rank's has failed
  if (failed_) {
    // If rank 0 could not write, it tells why; the others hardly have another reason.
    if (options_.warn && (net_.rank() == 0 || (!error_.empty() && all_[0].stage != Stage::kFailed))) {
      options_.warn(fmt::format("the checkpoint of step {} was not written{}; training goes on", saved_at_,
                                error_.empty() ? " by all ranks" : ": " + error_));
    }
  } else if (net_.rank() == 0) {
    CheckpointMeta meta = job_;
    meta.step = saved_at_;
    meta.files[shared_file()] = shared_sum_;
    for (std::size_t r = 0; r < all_.size(); ++r) meta.files[rank_file(static_cast<std::int64_t>(r))] = all_[r].sum;
    thread_ = std::thread([this, meta = std::move(meta)] { complete(meta); });
  }
}

void Checkpointer::complete(const CheckpointMeta& meta) {
  try {
    complete_checkpoint(options_.folder, meta, options_.keep);
  } catch (const std::exception& e) {
    error_ = e.what();
  }
}

bool Checkpointer::finish() {
  if (!open_) return true;
  open_ = false;
  if (asking_) heed();
  if (under_way_) {
    join();
    ask(saved_at_ + std::max<std::int64_t>(1, asked_at_));
    heed();
  }
  join();
  const char mine = failed_ || !error_.empty() ? 0 : 1;
  if (net_.rank() == 0 && mine == 0 && !failed_ && options_.warn) {
    options_.warn(fmt::format("the checkpoint of step {} was not completed: {}; training goes on", saved_at_, error_));
  }
  std::vector<char> all(all_.size());
  net_.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))).wait();
  return std::all_of(all.begin(), all.end(), [](char good) { return good != 0; });
}

double Checkpointer::seconds_since_last() const {
  return under_way_ ? options_.every.seconds : options_.seconds_before + net_.clock().now() - began_s_;
}

void Checkpointer::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace slipstream
