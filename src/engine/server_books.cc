// SPDX-License-Identifier: Apache-2.0
#include "engine/server_books.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>

#include "server/layout.h"

namespace slipstream {
namespace {

struct Place {
  std::size_t first = 0;
  std::string_view field;
};

std::optional<Place> place_of(std::string_view name) {
  constexpr std::string_view kPrefix = "server@";
  if (!name.starts_with(kPrefix)) return {};
  Place place;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), place.first);
  if (error != std::errc() || end == name.data() + name.size() || *end != '/') return {};
  place.field = name.substr(static_cast<std::size_t>(end - name.data()) + 1);
  return place;
}

}  // namespace

void ServerBooks::note(std::string_view name, std::span<const float> values, std::size_t count) {
  const auto place = place_of(name);
  if (!place || place->field == kServerCounters || place->first + values.size() > count) return;
  auto& field = fields_[std::string(place->field)];
  field.resize(count);
  std::copy(values.begin(), values.end(), field.begin() + static_cast<std::ptrdiff_t>(place->first));
  if (place->field == "weights") known_ += static_cast<std::int64_t>(values.size());
}

void ServerBooks::note(std::string_view name, std::int64_t value) {
  if (const auto place = place_of(name)) integers_[std::string(place->field)] = value;
}

ServerBooks ServerBooks::of(Strategy& strategy, std::size_t count) {
  struct Reader final : StateVisitor {
    ServerBooks books;
    std::size_t count;
    explicit Reader(std::size_t n) : count(n) {}
    void floats(std::string_view name, std::span<float> values) override { books.note(name, values, count); }
    void integer(std::string_view name, std::int64_t& value) override { books.note(name, value); }
  } reader(count);
  strategy.visit(reader);
  return std::move(reader.books);
}

bool ServerBooks::share(Fabric& net, const OptimizerOptions& optimizer, std::size_t count) {
  const auto of_all = [&net](std::int64_t mine) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(net.size()));
    net.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))).wait();
    return all;
  };
  const auto known = of_all(known_);
  if (std::accumulate(known.begin(), known.end(), std::int64_t{0}) != static_cast<std::int64_t>(count)) {
    *this = {};
    return false;
  }
  const ServerLayout layout(optimizer);
  for (const std::string& name : layout.fields) {
    auto& field = fields_[name];
    field.resize(count);
    net.sum(field).wait();  // each element is known to one rank and zero on the others
  }
  for (const std::string& name : layout.integers) {
    const auto all = of_all(integers_[name]);
    integers_[name] = *std::max_element(all.begin(), all.end());
  }
  known_ = static_cast<std::int64_t>(count);
  return true;
}

void ServerBooks::give_to(Strategy& strategy) const {
  struct Writer final : StateVisitor {
    const ServerBooks& books;
    explicit Writer(const ServerBooks& b) : books(b) {}
    void floats(std::string_view name, std::span<float> values) override {
      const auto place = place_of(name);
      if (!place) return;
      const auto field = books.fields_.find(place->field);
      if (field == books.fields_.end()) return;
      std::copy_n(field->second.begin() + static_cast<std::ptrdiff_t>(place->first), values.size(), values.begin());
    }
    void integer(std::string_view name, std::int64_t& value) override {
      const auto place = place_of(name);
      if (!place) return;
      if (const auto found = books.integers_.find(place->field); found != books.integers_.end()) value = found->second;
    }
  } writer(*this);
  strategy.visit(writer);
}

}  // namespace slipstream
