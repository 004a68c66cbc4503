// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <slipstream/base/error.h>

#include <cstdio>
#include <filesystem>

#include "checkpoint/folder.h"
#include "cli/verbs.h"
#include "runtime/convert.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string from, to;
};

void print(const std::string& text) { std::printf("%s\n", text.c_str()); }

void print_tensors(const SafetensorsFile& file) {
  for (const TensorView& tensor : file.tensors()) {
    print(fmt::format("  {} {} [{}]", tensor.name, to_text(tensor.dtype), fmt::join(tensor.shape, ", ")));
  }
}

void print_meta(const fs::path& checkpoint, const CheckpointMeta& meta) {
  print(fmt::format("{}: step {}, strategy {}, {} workers, {} servers", checkpoint.string(), meta.step, meta.strategy,
                    meta.workers, meta.servers));
  for (const auto& [key, value] : meta.options) print(fmt::format("  {} = {}", key, value));
  for (const auto& [key, value] : meta.run) print(fmt::format("  --{} {}", key, value));
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

int inspect(const Arguments& a) {
  if (is_file(a.from)) {
    print_tensors(SafetensorsFile(a.from));
    return 0;
  }
  const fs::path checkpoint = find_checkpoint(a.from);
  const CheckpointMeta meta = CheckpointMeta::read(checkpoint);
  print_meta(checkpoint, meta);
  for (const auto& [name, sum] : meta.files) {
    print(fmt::format("{} ({} bytes)", name, sum.bytes));
    print_tensors(SafetensorsFile(checkpoint / name, &sum));
  }
  return 0;
}

int verify(const Arguments& a) {
  const fs::path checkpoint = find_checkpoint(a.from);
  const CheckpointMeta meta = CheckpointMeta::read(checkpoint);
  for (std::int64_t rank = 0; rank < meta.workers; ++rank) read_rank(checkpoint, meta, rank);
  print_meta(checkpoint, meta);
  print("all files are as they were written");
  return 0;
}

void write_as(const std::string& path, std::vector<TensorView> tensors) {
  if (path.ends_with(".pt")) {
    write_python_model(path, tensors);
  } else if (path.ends_with(".safetensors")) {
    write_safetensors(path, std::move(tensors), {{"format", "pt"}});
  } else {
    fail<ConfigError>("{} should end with .pt or .safetensors", path);
  }
}

int convert(const Arguments& a) {
  if (is_file(a.from)) {
    const SafetensorsFile file(a.from);
    write_as(a.to, file.tensors());
    return 0;
  }
  const fs::path checkpoint = find_checkpoint(a.from);
  const CheckpointMeta meta = CheckpointMeta::read(checkpoint);
  const StateArchive model = read_model(checkpoint, meta);
  write_as(a.to, model.tensors(meta.module_shapes()));
  return 0;
}

}  // namespace

Verb add_ckpt(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  CLI::App& verb = *app.add_subcommand("ckpt", "look at, check or convert a checkpoint");
  verb.require_subcommand(1);
  const auto sub = [&](const char* name, const char* about) {
    CLI::App* made = verb.add_subcommand(name, about);
    made->add_option("CHECKPOINT", a->from, "a checkpoint, or a directory of them: its latest")->required();
    return made;
  };
  const CLI::App* inspecting = sub("inspect", "what a checkpoint, or a safetensors file, holds");
  const CLI::App* verifying = sub("verify", "compare all files of a checkpoint with the hashes they were written with");
  CLI::App* converting = sub("convert", "the model of a checkpoint, or a safetensors file, as another file");
  converting->add_option("FILE", a->to, "model.pt for Python's torch.load, or model.safetensors")->required();
  return [=](const Invocation&) {
    if (inspecting->parsed()) return inspect(*a);
    return verifying->parsed() ? verify(*a) : convert(*a);
  };
}

}  // namespace slipstream
