// SPDX-License-Identifier: Apache-2.0
//
// checkpoint_bench: how long training waits for a checkpoint that is not the first, next to a memcpy of the state that
// is saved. The files are written by another thread, whose time does not count here; they go to a temporary folder.
#include <slipstream/base/error.h>

#include <cstdlib>
#include <filesystem>

#include "engine/checkpointer.h"
#include "fabric/mesh_fabric.h"
#include "micro/harness.h"

namespace slipstream {
namespace {

struct Data {
  std::vector<float> weights = std::vector<float>(bench::kFloats, 1.5F);
  std::vector<float> momentum = std::vector<float>(bench::kFloats, 0.5F);
  std::string folder = (std::filesystem::temp_directory_path() / "slipstream-bench-XXXXXX").string();
  MeshFabric alone{Rendezvous{}};
  std::int64_t step = 0;

  Data() { check(mkdtemp(folder.data()) != nullptr, "cannot make a temporary folder"); }
  ~Data() { std::filesystem::remove_all(folder); }
};

std::vector<bench::Operation> operations_on(Data& data) {
  const auto visit = [&data](StateVisitor& v) {
    v.floats("weights", data.weights);
    v.floats("momentum", data.momentum);
  };
  const auto snapshot = [visit](StateArchive& state) { state.save("", visit); };
  auto copy = std::make_shared<StateArchive>();
  auto saver =
      std::make_shared<Checkpointer>(data.alone, Checkpointer::Options{data.folder, {}, 1}, CheckpointMeta{}, 0);
  const std::size_t traffic = 2 * 2 * bench::kFloats * sizeof(float);  // of one memcpy of the state
  return {
      {.name = "copy of the state",
       .bytes = traffic,
       .run =
           [copy, snapshot] {
             copy->forget();
             snapshot(*copy);
           },
       .iterations = 7},
      {.name = "checkpoint",
       .bytes = traffic,
       .run =
           [&data, saver, snapshot] {
             saver->save(++data.step, snapshot);
             check(saver->finish(), "the checkpoint was not written");  // sleeps
           },
       .iterations = 7},
  };
}

}  // namespace
}  // namespace slipstream

int main(int argc, char** argv) { return slipstream::bench::run(argc, argv, slipstream::operations_on); }
