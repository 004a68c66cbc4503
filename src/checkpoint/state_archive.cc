// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/state_archive.h"

#include <slipstream/base/error.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace slipstream {

class StateArchive::Saver final : public StateVisitor {
 public:
  Saver(StateArchive& archive, std::string_view prefix) : archive_(archive), prefix_(prefix) {}
  void floats(std::string_view name, std::span<float> values) override {
    const std::string full = prefix_ + std::string(name);
    std::vector<float> copy;
    if (const auto spare = archive_.spare_.find(full); spare != archive_.spare_.end()) {
      if (auto* floats = std::get_if<std::vector<float>>(&spare->second)) copy = std::move(*floats);
      archive_.spare_.erase(spare);
    }
    copy.assign(values.begin(), values.end());
    archive_.put(full, std::move(copy));
  }
  void integer(std::string_view name, std::int64_t& value) override {
    archive_.put(prefix_ + std::string(name), value);
  }

 private:
  StateArchive& archive_;
  std::string prefix_;
};

class StateArchive::Restorer final : public StateVisitor {
 public:
  Restorer(const StateArchive& archive, std::string_view prefix) : archive_(archive), prefix_(prefix) {}

  void floats(std::string_view name, std::span<float> values) override {
    const auto& saved = find<std::vector<float>>(name, "floats");
    if (saved.size() != values.size()) {
      fail<ConfigError>(
          "saved state '{}{}' has {} floats where {} are expected; resume with the model and the options "
          "it was saved with",
          prefix_, name, saved.size(), values.size());
    }
    std::copy(saved.begin(), saved.end(), values.begin());
  }
  void integer(std::string_view name, std::int64_t& value) override { value = find<std::int64_t>(name, "an integer"); }

  void check_all_used() const {
    const auto& entries = archive_.entries_;
    for (auto entry = entries.lower_bound(prefix_); entry != entries.end() && entry->first.starts_with(prefix_);
         ++entry) {
      if (used_.contains(entry->first)) continue;
      fail<ConfigError>("saved state '{}' has no place here; resume with the options it was saved with", entry->first);
    }
  }

 private:
  template <typename T>
  const T& find(std::string_view name, std::string_view kind) {
    const std::string full = prefix_ + std::string(name);
    const auto entry = archive_.entries_.find(full);
    if (entry == archive_.entries_.end()) {
      fail<ConfigError>("saved state has no entry '{}'; resume with the options it was saved with", full);
    }
    const T* value = std::get_if<T>(&entry->second);
    if (value == nullptr) fail<ConfigError>("saved state '{}' is not {}; it is of another version or kind", full, kind);
    used_.insert(full);
    return *value;
  }

  const StateArchive& archive_;
  std::string prefix_;
  std::set<std::string> used_;
};

void StateArchive::put(std::string name, Value value) {
  const auto [entry, fresh] = entries_.emplace(std::move(name), std::move(value));
  check(fresh, "two pieces of state are both named '{}'", entry->first);
}

void StateArchive::forget() {
  spare_ = std::move(entries_);
  entries_.clear();
}

const StateArchive::Raw& StateArchive::raw(const std::string& name) const {
  const auto entry = entries_.find(name);
  const Raw* value = entry == entries_.end() ? nullptr : std::get_if<Raw>(&entry->second);
  if (value == nullptr) fail<ConfigError>("saved state has no entry '{}' of bytes; it is of another version", name);
  return *value;
}

void StateArchive::take(StateArchive& other, const std::string& name) {
  auto node = other.entries_.extract(name);
  check(!node.empty(), "there is no state '{}' to take", name);
  put(name, std::move(node.mapped()));
}

std::vector<TensorView> StateArchive::tensors(const Shapes& shapes) const {
  std::vector<TensorView> all;
  for (const auto& [name, value] : entries_) {
    if (const auto* floats = std::get_if<std::vector<float>>(&value)) {
      const auto shape = shapes.find(name);
      all.push_back({name, Dtype::kF32,
                     shape == shapes.end() ? std::vector{static_cast<std::int64_t>(floats->size())} : shape->second,
                     std::as_bytes(std::span(*floats))});
    } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      all.push_back({name, Dtype::kI64, {}, std::as_bytes(std::span(integer, 1))});
    } else {
      const Raw& raw = std::get<Raw>(value);
      all.push_back({name, raw.dtype, raw.shape, raw.bytes});
    }
  }
  return all;
}

void StateArchive::add(const std::vector<TensorView>& tensors) {
  for (const TensorView& tensor : tensors) {
    if (tensor.dtype == Dtype::kF32) {
      std::vector<float> floats(tensor.data.size() / sizeof(float));
      if (!floats.empty()) std::memcpy(floats.data(), tensor.data.data(), tensor.data.size());
      put(tensor.name, std::move(floats));
    } else if (tensor.dtype == Dtype::kI64 && tensor.shape.empty()) {
      std::int64_t integer = 0;
      std::memcpy(&integer, tensor.data.data(), sizeof integer);
      put(tensor.name, integer);
    } else {
      put(tensor.name, Raw{tensor.dtype, tensor.shape, {tensor.data.begin(), tensor.data.end()}});
    }
  }
}

void StateArchive::save(std::string_view prefix, const Visit& visit) {
  Saver saver(*this, prefix);
  visit(saver);
}

void StateArchive::restore(std::string_view prefix, const Visit& visit) const {
  Restorer restorer(*this, prefix);
  visit(restorer);
  restorer.check_all_used();
}

}  // namespace slipstream
