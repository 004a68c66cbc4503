// SPDX-License-Identifier: Apache-2.0
//
// A report: one HTML file about some runs, for people who choose between strategies. It opens offline, asks nothing of
// any network (its own policy forbids it; that of a live page allows its own server), and shows its tables without
// scripts; with scripts it draws curves, bars and a timeline by Chart.js and page/page.js, both inside the file.
// Whatever the runs contain is text there, never markup.
//
// It does not judge which run is best and takes no means over runs: src/compare does, for a grid of them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "report/run.h"

namespace slipstream {

// Of src/report/page and Chart.js; written by cmake/embed_page.cmake.
struct PageParts {
  std::string_view html, css, js, chart_js;
};
const PageParts& page_parts();

// Runs of the same name are distinguished by their paths.
std::vector<Run> read_runs(const std::vector<std::string>& folders);

// The part above the runs if they belong to a comparison (src/compare), or a plan (src/plan), which has no runs.
struct GridPart {
  std::string title;  // of the page
  std::string html;   // tables; empty: there are only runs
  std::string data;   // JSON, what page/grid.js draws
};

std::string report_page(const std::vector<Run>& runs, const GridPart& grid = {});

// The same page for a run in progress; it repeatedly asks its server for "data.json" (live_data).
std::string live_page(const Run& run);
std::string live_data(const Run& run);

// ConfigError where the file cannot be written.
void write_report(const std::vector<Run>& runs, const std::filesystem::path& file, const GridPart& grid = {});

}  // namespace slipstream
