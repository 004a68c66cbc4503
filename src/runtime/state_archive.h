// SPDX-License-Identifier: Apache-2.0
//
// StateArchive: the named state of a worker, in memory. What is saved under a prefix is restored under the same prefix,
// entry by entry, sizes unchanged. It does not know files; a checkpoint writes its entries out.
#pragma once

#include <slipstream/base/state.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace slipstream {

class StateArchive {
 public:
  using Value = std::variant<std::vector<float>, std::int64_t>;
  using Visit = std::function<void(StateVisitor&)>;  // [&](StateVisitor& v) { optimizer.visit(v); }

  // Copies all that `visit` names. A name that is taken throws Error.
  void save(std::string_view prefix, const Visit& visit);

  // Writes the entries back into what `visit` names. A name that is missing, of another kind or size, or saved but not
  // named any more, throws ConfigError naming it.
  void restore(std::string_view prefix, const Visit& visit) const;

  const std::map<std::string, Value>& entries() const { return entries_; }
  void put(std::string name, Value value);  // for whoever reads an archive from elsewhere

 private:
  class Saver;
  class Restorer;

  std::map<std::string, Value> entries_;
};

}  // namespace slipstream
