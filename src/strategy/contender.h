// SPDX-License-Identifier: Apache-2.0
//
// Contender: a strategy with options, as users write it: NAME or NAME:KEY=VALUE,… It is text; whether there are such a
// strategy and such options, the Registry tells.
#pragma once

#include <string>
#include <vector>

namespace slipstream {

struct Contender {
  std::string name;
  std::vector<std::string> set;  // "key=value"

  static Contender parse(const std::string& text);
  std::string text() const;
};

}  // namespace slipstream
