// SPDX-License-Identifier: Apache-2.0
//
// StateArchive: the named state of a worker, in memory. What is saved under a prefix is restored under the same prefix,
// entry by entry, sizes unchanged. As tensors of a file its entries are F32, a single I64, or whatever a Raw says.
#pragma once

#include <slipstream/base/state.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "checkpoint/safetensors.h"

namespace slipstream {

class StateArchive {
 public:
  struct Raw {  // what a StateVisitor does not know: a buffer of another type, a generator's state
    Dtype dtype = Dtype::kU8;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
    bool operator==(const Raw&) const = default;
  };
  using Value = std::variant<std::vector<float>, std::int64_t, Raw>;
  using Visit = std::function<void(StateVisitor&)>;  // [&](StateVisitor& v) { optimizer.visit(v); }

  // Copies all that `visit` names. A name that is taken throws Error. Memory that forget() left is used again: writing
  // to fresh memory takes several times as long as copying.
  void save(std::string_view prefix, const Visit& visit);

  // Writes the entries back into what `visit` names. A name that is missing, of another kind or size, or saved but not
  // named any more, throws ConfigError naming it.
  void restore(std::string_view prefix, const Visit& visit) const;

  const std::map<std::string, Value>& entries() const { return entries_; }
  void put(std::string name, Value value);        // Error where the name is taken
  const Raw& raw(const std::string& name) const;  // ConfigError where there is none

  void forget();  // all entries; their memory stays for those of the same name and size

  // Takes the entry out of the other archive.
  void take(StateArchive& other, const std::string& name);

  using Shapes = std::map<std::string, std::vector<std::int64_t>, std::less<>>;
  // Views of all entries. Floats are vectors, unless `shapes` has a shape for their name.
  std::vector<TensorView> tensors(const Shapes& shapes) const;
  void add(const std::vector<TensorView>& tensors);

 private:
  class Saver;
  class Restorer;

  std::map<std::string, Value> entries_, spare_;
};

}  // namespace slipstream
