// SPDX-License-Identifier: Apache-2.0
#include "compare/spec.h"

#include <fmt/ranges.h>
#include <slipstream/base/error.h>
#include <slipstream/base/option.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

#include "compare/peer.h"
#include "lab/lab.h"

namespace slipstream {
namespace {

const std::vector<std::string> kClaimKinds = {"no worse", "bytes", "formula", "rising"};

// Flags that the grid itself passes to every cell, and what to use instead.
constexpr std::pair<std::string_view, std::string_view> kOwnFlags[] = {
    {"--strategy", "strategies"}, {"--model", "models"},      {"--lab", "links"},
    {"--workers", "workers"},     {"--seed", "seeds"},        {"--out", "the grid's own --out"},
    {"--json", "results.json"},   {"--overwrite", "--again"}, {"--resume", "--again"},
    {"--config", "the flags"},    {"--rank", "workers"},      {"--world-size", "workers"},
};

bool holds(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

template <typename T>
void check_unique(const GridSpec& grid, const char* what, const std::vector<T>& values) {
  std::set<T> seen;
  for (const T& value : values) {
    if (!seen.insert(value).second) fail<ConfigError>("grid {} has {} {} twice", grid.name, what, value);
  }
}

void check_contender(const GridSpec& grid, const std::string& name, const char* where) {
  const auto known = grid.contenders();
  if (holds(known, name)) return;
  const std::string near = nearest(name, known);
  fail<ConfigError>("{} of grid {} names {}, which is none of its contenders{}", where, grid.name, name,
                    near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

void check_claim(const GridSpec& grid, const Claim& claim) {
  if (!holds(kClaimKinds, claim.kind)) {
    fail<ConfigError>("a claim of grid {} is of kind '{}'; there are {}", grid.name, claim.kind,
                      fmt::join(kClaimKinds, ", "));
  }
  const std::size_t least = claim.kind == "no worse" || claim.kind == "rising" ? 2 : 1;
  if (claim.of.size() < least || (claim.kind != "rising" && claim.of.size() > least)) {
    fail<ConfigError>("a claim of kind '{}' is about {}{} contender{}, not {}", claim.kind,
                      claim.kind == "rising" ? "at least " : "", least, least == 1 ? "" : "s", claim.of.size());
  }
  for (const std::string& name : claim.of) check_contender(grid, name, "a claim");
}

// Reads one table into a grid; errors name the line.
class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  void read(const toml::table& table, GridSpec& grid, bool is_top) const {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      if (is_top && name == "grid") continue;
      try {
        if (!set(name, node, grid)) {
          const std::string near = nearest(name, known_keys());
          fail<ConfigError>("there is no key {}{}", name,
                            near.empty() ? fmt::format("; use one of {}", fmt::join(known_keys(), ", "))
                                         : fmt::format(" (did you mean {}?)", near));
        }
      } catch (const ConfigError& e) {
        fail<ConfigError>("{}:{}: {}", file_, node.source().begin.line, e.what());
      }
    }
  }

 private:
  static const std::vector<std::string>& known_keys() {
    static const std::vector<std::string> keys = {"name",   "about", "train",   "strategies",     "peers",
                                                  "models", "links", "workers", "seeds",          "repeats",
                                                  "target", "limit", "limits",  "reference_link", "claims"};
    return keys;
  }

  static bool set(const std::string& key, const toml::node& node, GridSpec& grid) {
    if (key == "name") return grid.name = text(node, key), true;
    if (key == "about") return grid.about = text(node, key), true;
    if (key == "reference_link") return grid.reference_link = text(node, key), true;
    if (key == "strategies") return grid.strategies = texts(node, key), true;
    if (key == "peers") return grid.peers = texts(node, key), true;
    if (key == "models") return grid.models = texts(node, key), true;
    if (key == "links") return grid.links = texts(node, key), true;
    if (key == "workers") return grid.workers = integers(node, key), true;
    if (key == "seeds") return grid.seeds = integers(node, key), true;
    if (key == "repeats") return grid.repeats = integer(node, key), true;
    if (key == "limit") return grid.limit = number(node, key), true;
    if (key == "target")
      return grid.target = node.is_string() ? parse_target(text(node, key)) : number(node, key), true;
    if (key == "train") {
      const auto words = node.is_string() ? split_words(text(node, key)) : texts(node, key);
      grid.train.insert(grid.train.end(), words.begin(), words.end());
      return true;
    }
    if (key == "limits") {
      const auto* table = node.as_table();
      if (table == nullptr) fail<ConfigError>("limits is a table: limits = {{lags = 0.5}}");
      for (const auto& [name, value] : *table) grid.limits[std::string(name.str())] = number(value, key);
      return true;
    }
    if (key != "claims") return false;
    const auto* list = node.as_array();
    if (list == nullptr) fail<ConfigError>("claims is a list of tables: claims = [{{kind = …, of = […], value = …}}]");
    grid.claims.clear();
    for (const auto& entry : *list) grid.claims.push_back(claim(entry));
    return true;
  }

  static Claim claim(const toml::node& node) {
    const auto* table = node.as_table();
    if (table == nullptr) fail<ConfigError>("a claim is a table: {{kind = …, of = […], value = …}}");
    Claim made;
    for (const auto& [key, value] : *table) {
      const std::string name(key.str());
      if (name == "kind") {
        made.kind = text(value, name);
      } else if (name == "of") {
        made.of = texts(value, name);
      } else if (name == "value") {
        made.value = number(value, name);
      } else {
        fail<ConfigError>("a claim has no key {}; it has kind, of and value", name);
      }
    }
    return made;
  }

  static std::string text(const toml::node& node, const std::string& key) {
    const auto* value = node.as_string();
    if (value == nullptr) fail<ConfigError>("{} is a text in quotes", key);
    return value->get();
  }
  static double number(const toml::node& node, const std::string& key) {
    const auto value = node.value<double>();
    if (!value || node.is_string()) fail<ConfigError>("{} is a number", key);
    return *value;
  }
  static std::int64_t integer(const toml::node& node, const std::string& key) {
    const auto* value = node.as_integer();
    if (value == nullptr) fail<ConfigError>("{} is a whole number", key);
    return value->get();
  }
  static std::vector<std::string> texts(const toml::node& node, const std::string& key) {
    return list<std::string>(node, key, text, "a list of texts: [\"…\", \"…\"]");
  }
  static std::vector<std::int64_t> integers(const toml::node& node, const std::string& key) {
    return list<std::int64_t>(node, key, integer, "a list of whole numbers: [1, 2]");
  }
  template <typename T, typename One>
  static std::vector<T> list(const toml::node& node, const std::string& key, const One& one, const char* form) {
    const auto* values = node.as_array();
    if (values == nullptr) fail<ConfigError>("{} is {}", key, form);
    std::vector<T> made;
    for (const auto& value : *values) made.push_back(one(value, key));
    return made;
  }

  std::string file_;
};

}  // namespace

std::vector<std::string> split_words(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string strategy_name(const std::string& contender) { return contender.substr(0, contender.find(':')); }

double parse_target(std::string_view text) {
  const bool percent = text.ends_with('%');
  const std::string_view digits = percent ? text.substr(0, text.size() - 1) : text;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value)) {
    fail<ConfigError>("target {} is no number; write an accuracy as 85% or 0.85, a loss as 1.9", text);
  }
  return percent ? value / 100 : value;
}

std::vector<std::string> GridSpec::contenders() const {
  std::vector<std::string> all = strategies;
  all.insert(all.end(), peers.begin(), peers.end());
  return all;
}

const std::string& GridSpec::reference() const { return strategies.empty() ? peers.front() : strategies.front(); }

std::optional<double> GridSpec::limit_of(const std::string& contender) const {
  if (const auto own = limits.find(contender); own != limits.end()) return own->second;
  return contender == reference() ? std::nullopt : limit;
}

bool GridSpec::by_loss() const {
  for (std::size_t i = 0; i < train.size(); ++i) {
    if (train[i] == "--task=text" || (train[i] == "--task" && i + 1 < train.size() && train[i + 1] == "text"))
      return true;
  }
  return false;
}

void GridSpec::validate() const {
  if (contenders().empty()) fail<ConfigError>("grid {} has no contender; give strategies, peers or both", name);
  if (links.empty() || workers.empty() || seeds.empty()) {
    fail<ConfigError>("grid {} has nothing to run: links, workers and seeds have at least one entry each", name);
  }
  check_unique(*this, "the contender", contenders());
  check_unique(*this, "the link", links);
  check_unique(*this, "the model", models);
  check_unique(*this, "the worker count", workers);
  check_unique(*this, "the seed", seeds);
  for (const std::string& peer : peers) {
    check_peer(peer);
    if (holds(links, std::string(kLoopback))) {
      fail<ConfigError>("peer {} runs in a lab, not on the link {}; use none for a network that is not shaped", peer,
                        kLoopback);
    }
  }
  for (const std::string& link : links) {
    if (link != kLoopback) LabSpec::parse(link);
  }
  if (!reference_link.empty() && reference_link != kLoopback) LabSpec::parse(reference_link);
  for (const std::int64_t count : workers) {
    if (count < 1) fail<ConfigError>("grid {} has {} workers; there is at least 1", name, count);
  }
  for (const std::int64_t seed : seeds) {
    if (seed < 0) fail<ConfigError>("grid {} has the seed {}; it is at least 0", name, seed);
  }
  if (repeats < 1) fail<ConfigError>("grid {} has repeats = {}; it is at least 1", name, repeats);
  if (target && !by_loss() && !(*target > 0 && *target < 1)) {
    fail<ConfigError>("target {} is no accuracy; write 85% or 0.85", *target);
  }
  for (const std::string& word : train) {
    for (const auto& [flag, instead] : kOwnFlags) {
      if (word != flag && !word.starts_with(std::string(flag) + "=")) continue;
      fail<ConfigError>("grid {} gives {} to `slipstream train` itself; use {} instead", name, flag, instead);
    }
  }
  for (const auto& [contender, value] : limits) check_contender(*this, contender, "limits");
  for (const Claim& claim : claims) check_claim(*this, claim);
}

std::vector<GridSpec> read_spec(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file)) fail<ConfigError>("--spec {}: no such file", file.string());
  toml::table all;
  try {
    all = toml::parse_file(file.string());
  } catch (const toml::parse_error& e) {
    fail<ConfigError>("{}:{}: {}", file.string(), e.source().begin.line, e.description());
  }
  const Reader reader(file.string());
  GridSpec common;
  common.name = file.stem().string();
  reader.read(all, common, true);
  const auto validate = [&file](const GridSpec& grid, const toml::node& where) {
    try {
      grid.validate();
    } catch (const ConfigError& e) {
      fail<ConfigError>("{}:{}: {}", file.string(), where.source().begin.line, e.what());
    }
  };
  const toml::node* listed = all.get("grid");
  if (listed == nullptr) return validate(common, all), std::vector{common};
  const auto* grids = listed->as_array();
  std::vector<GridSpec> made;
  for (std::size_t i = 0; grids != nullptr && i < grids->size(); ++i) {
    const auto* table = grids->get(i)->as_table();
    if (table == nullptr) break;
    reader.read(*table, made.emplace_back(common), false);
    validate(made.back(), *table);
    for (std::size_t other = 0; other < i; ++other) {
      if (made[other].name != made[i].name) continue;
      fail<ConfigError>("{}:{}: there is another grid named {}; give each a name of its own", file.string(),
                        table->source().begin.line, made[i].name);
    }
  }
  if (made.empty()) fail<ConfigError>("{}:{}: grids are written [[grid]]", file.string(), listed->source().begin.line);
  return made;
}

void keep_strategies(GridSpec& grid, const std::vector<std::string>& names) {
  const auto is_named = [&names](const std::string& contender) {
    return holds(names, contender) || holds(names, strategy_name(contender));
  };
  for (const std::string& name : names) {
    const auto is_it = [&name](const std::string& c) { return c == name || strategy_name(c) == name; };
    if (std::any_of(grid.strategies.begin(), grid.strategies.end(), is_it)) continue;
    fail<ConfigError>("grid {} has no strategy {}; it has {}", grid.name, name, fmt::join(grid.strategies, ", "));
  }
  const std::string reference = grid.reference();
  std::erase_if(grid.strategies, [&](const std::string& c) { return c != reference && !is_named(c); });
  const auto kept = grid.contenders();
  std::erase_if(grid.limits, [&](const auto& entry) { return !holds(kept, entry.first); });
  std::erase_if(grid.claims, [&](const Claim& claim) {
    return !std::all_of(claim.of.begin(), claim.of.end(), [&](const auto& name) { return holds(kept, name); });
  });
}

}  // namespace slipstream
