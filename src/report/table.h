// SPDX-License-Identifier: Apache-2.0
//
// Pieces of the tables of a report, as HTML. Every column's title says what it holds. Arguments that are text are
// escaped here; arguments that are HTML must be escaped by the caller.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "report/run.h"

namespace slipstream {

struct Column {
  std::string name, title;
};

// Takes a caption (text) and rows (HTML).
std::string table(std::string_view caption, std::span<const Column> columns, const std::string& rows);
std::string cell(const std::string& html, std::string_view kind = "");  // kind: "n" for numbers, "wide", "split"
std::string small(const std::string& text, bool warns = false);         // a line below; empty for an empty text

// The four phases of a step as a bar and as numbers.
std::string phase_bar(const Phases& mean);

}  // namespace slipstream
