// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder.h"

#include <fmt/ranges.h>
#include <slipstream/base/error.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoint/atomic_file.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kMeta = "meta.json";
constexpr const char* kLatest = "latest";
constexpr const char* kStep = "step-";
constexpr std::uintmax_t kMostText = 100'000'000;

std::string read_text(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) fail<DataError>("{}: cannot be read ({})", path.string(), error.message());
  if (size > kMostText) fail<DataError>("{}: at byte 0: {} bytes are too many for it", path.string(), size);
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) fail<DataError>("{}: cannot be read ({})", path.string(), std::strerror(errno));
  return text.str();
}

// The step of a folder's name; nothing where it is none.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStep) || name.size() == 5 || name.size() > 20) return {};
  if (!std::all_of(name.begin() + 5, name.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) return {};
  return std::stoll(name.substr(5));
}

// The complete checkpoints of a folder by step.
std::map<std::int64_t, fs::path> complete_ones(const fs::path& folder) {
  std::map<std::int64_t, fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && fs::exists(entry.path() / kMeta, ignored)) found[*step] = entry.path();
  }
  return found;
}

std::optional<fs::path> latest_of(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / kLatest, ignored)) return {};
  std::string name = read_text(folder / kLatest);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  if (!step_of(name)) fail<DataError>("{}: at byte 0: it does not name a checkpoint", (folder / kLatest).string());
  return folder / name;
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) fail<ConfigError>("cannot remove {}: {}", path.string(), error.message());
}

ordered_json object_of(const Texts& texts) {
  ordered_json object = ordered_json::object();
  for (const auto& [key, value] : texts) object[key] = value;
  return object;
}

Texts texts_of(const ordered_json& object) {
  Texts texts;
  for (const auto& [key, value] : object.items()) texts.emplace_back(key, value.get<std::string>());
  return texts;
}

void require_same_texts(const Texts& mine, const Texts& saved, const fs::path& where, const std::string& what) {
  for (const auto& [key, value] : mine) {
    const auto other = std::find_if(saved.begin(), saved.end(), [&](const auto& pair) { return pair.first == key; });
    if (other != saved.end() && other->second == value) continue;
    fail<ConfigError>("{} was saved with {} {} = {}, this job has {}; resume with what it was saved with",
                      where.string(), what, key, other == saved.end() ? "(none)" : other->second, value);
  }
}

}  // namespace

std::string shared_file() { return "shared.safetensors"; }
std::string rank_file(std::int64_t rank) { return fmt::format("rank-{}.safetensors", rank); }
fs::path step_folder(const fs::path& folder, std::int64_t step) { return folder / fmt::format("{}{:06}", kStep, step); }

StateArchive::Shapes CheckpointMeta::module_shapes() const {
  StateArchive::Shapes shapes;
  for (const auto& [entry, shape] : tensors) shapes[name_in_module(entry).value_or(entry)] = shape;
  return shapes;
}

StateArchive::Shapes CheckpointMeta::shapes() const { return {tensors.begin(), tensors.end()}; }

std::string CheckpointMeta::to_json() const {
  ordered_json j;
  j["version"] = kVersion;
  j["step"] = step;
  j["workers"] = workers;
  j["servers"] = servers;
  j["strategy"] = strategy;
  j["options"] = object_of(options);
  j["run"] = object_of(run);
  j["tensors"] = ordered_json::array();
  for (const auto& [name, shape] : tensors) j["tensors"].push_back({{"name", name}, {"shape", shape}});
  j["files"] = ordered_json::object();
  for (const auto& [name, sum] : files) {
    j["files"][name] = {{"bytes", sum.bytes}, {"xxh3", fmt::format("{:016x}", sum.hash)}};
  }
  return j.dump(1) + "\n";
}

CheckpointMeta CheckpointMeta::read(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kMeta;
  const std::string text = read_text(path);
  CheckpointMeta meta;
  try {
    const ordered_json j = ordered_json::parse(text);
    if (const auto version = j.at("version").get<std::int64_t>(); version != kVersion) {
      fail<DataError>("{}: at byte 0: it is of version {}, this program reads version {}", path.string(), version,
                      kVersion);
    }
    meta.step = j.at("step").get<std::int64_t>();
    meta.workers = j.at("workers").get<std::int64_t>();
    meta.servers = j.at("servers").get<std::int64_t>();
    meta.strategy = j.at("strategy").get<std::string>();
    meta.options = texts_of(j.at("options"));
    meta.run = texts_of(j.at("run"));
    for (const auto& tensor : j.at("tensors")) {
      meta.tensors.emplace_back(tensor.at("name").get<std::string>(),
                                tensor.at("shape").get<std::vector<std::int64_t>>());
    }
    for (const auto& [name, sum] : j.at("files").items()) {
      meta.files[name] = {sum.at("bytes").get<std::uint64_t>(),
                          std::stoull(sum.at("xxh3").get<std::string>(), nullptr, 16)};
    }
    if (meta.step < 0 || meta.workers < 1 || meta.workers > 1'000'000) {
      fail<DataError>("{}: at byte 0: step {} of {} workers", path.string(), meta.step, meta.workers);
    }
  } catch (const json::parse_error& e) {
    fail<DataError>("{}: at byte {}: it is not JSON; it is damaged", path.string(), e.byte > 0 ? e.byte - 1 : 0);
  } catch (const json::exception& e) {
    fail<DataError>("{}: between byte 0 and byte {}: {}; it is damaged or no checkpoint", path.string(), text.size(),
                    e.what());
  } catch (const std::logic_error&) {  // of stoull
    fail<DataError>("{}: between byte 0 and byte {}: a hash is not one; it is damaged", path.string(), text.size());
  }
  return meta;
}

void CheckpointMeta::require_fits(const CheckpointMeta& saved, const fs::path& where) const {
  require_same_texts({{"strategy", strategy}}, {{"strategy", saved.strategy}}, where, "the");
  require_same_texts(options, saved.options, where, "the option");
  require_same_texts(run, saved.run, where, "the flag");
  if (saved.tensors.size() != tensors.size()) {
    fail<ConfigError>("{} holds a model of {} tensors, this one has {}; resume with the model it was saved with",
                      where.string(), saved.tensors.size(), tensors.size());
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i] == saved.tensors[i]) continue;
    fail<ConfigError>(
        "{} holds '{}' of shape [{}] where the model has '{}' of shape [{}]; resume with the model it was "
        "saved with",
        where.string(), saved.tensors[i].first, fmt::join(saved.tensors[i].second, ", "), tensors[i].first,
        fmt::join(tensors[i].second, ", "));
  }
}

fs::path find_checkpoint(const fs::path& where) {
  std::error_code ignored;
  if (fs::exists(where / kMeta, ignored)) return where;
  const auto latest = latest_of(where);
  if (!latest) {
    fail<DataError>("{}: neither a checkpoint (it has no meta.json) nor a folder of some (it has no file 'latest')",
                    where.string());
  }
  return *latest;
}

bool has_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kLatest, ignored);
}

void begin_checkpoint(const fs::path& folder, std::int64_t step) {
  const fs::path target = step_folder(folder, step);
  std::error_code error;
  fs::create_directories(target, error);
  if (error) fail<ConfigError>("cannot create {}: {}", target.string(), error.message());
  const auto latest = latest_of(folder);
  if (latest && step_of(latest->filename().string()) >= step) {
    auto complete = complete_ones(folder);
    const auto next = complete.lower_bound(step);
    if (next == complete.begin()) {
      remove_file(folder / kLatest);
      sync_folder(folder);
    } else {
      write_atomically(folder / kLatest, std::prev(next)->second.filename().string() + "\n");
    }
  }
  remove_file(target / kMeta);
  sync_folder(target);
  sync_folder(folder);
}

void complete_checkpoint(const fs::path& folder, const CheckpointMeta& meta, std::int64_t keep) {
  const fs::path target = step_folder(folder, meta.step);
  write_atomically(target / kMeta, meta.to_json());
  write_atomically(folder / kLatest, target.filename().string() + "\n");
  if (keep <= 0) return;
  auto complete = complete_ones(folder);
  complete.erase(complete.upper_bound(meta.step), complete.end());
  for (auto oldest = complete.begin(); static_cast<std::int64_t>(complete.size()) > keep;) {
    remove_file(oldest->second / kMeta);  // first: half a checkpoint must not look whole
    std::error_code error;
    fs::remove_all(oldest->second, error);
    if (error) fail<ConfigError>("cannot remove the old checkpoint {}: {}", oldest->second.string(), error.message());
    oldest = complete.erase(oldest);
  }
}

namespace {

StateArchive read_file(const fs::path& checkpoint, const CheckpointMeta& meta, const std::string& name) {
  const auto expected = meta.files.find(name);
  if (expected == meta.files.end()) {
    fail<DataError>("{}: between byte 0 and its end: it does not mention {}; it is damaged",
                    (checkpoint / kMeta).string(), name);
  }
  const SafetensorsFile file(checkpoint / name, &expected->second);
  StateArchive archive;
  archive.add(file.tensors());
  return archive;
}

}  // namespace

StateArchive read_rank(const fs::path& checkpoint, const CheckpointMeta& meta, std::int64_t rank) {
  StateArchive state = read_file(checkpoint, meta, shared_file());
  StateArchive own = read_file(checkpoint, meta, rank_file(rank));
  while (!own.entries().empty()) state.take(own, std::string(own.entries().begin()->first));
  return state;
}

StateArchive read_model(const fs::path& checkpoint, const CheckpointMeta& meta) {
  StateArchive model;
  std::map<std::string, std::vector<double>> sums;
  const auto take = [&](const StateArchive& from, bool shared) {
    for (const auto& [name, value] : from.entries()) {
      const auto plain = name_in_module(name);
      if (!plain) continue;
      const auto* floats = std::get_if<std::vector<float>>(&value);
      if (shared || floats == nullptr) {
        if (!model.entries().contains(*plain)) model.put(*plain, value);
      } else {
        auto& sum = sums.try_emplace(*plain, floats->size()).first->second;
        if (sum.size() != floats->size()) {
          fail<DataError>("{}: from byte 0 on: '{}' has not the same size in the files of all ranks",
                          checkpoint.string(), name);
        }
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>((*floats)[i]);
      }
    }
  };
  take(read_file(checkpoint, meta, shared_file()), true);
  for (std::int64_t rank = 0; rank < meta.workers; ++rank) take(read_file(checkpoint, meta, rank_file(rank)), false);
  for (const auto& [name, sum] : sums) {
    std::vector<float> mean(sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      mean[i] = static_cast<float>(sum[i] / static_cast<double>(meta.workers));
    }
    model.put(name, std::move(mean));
  }
  return model;
}

std::optional<std::string> name_in_module(const std::string& entry) {
  for (const std::string prefix : {kModelPrefix, kBufferPrefix}) {
    if (entry.starts_with(prefix)) return entry.substr(prefix.size());
  }
  return {};
}

}  // namespace slipstream
