// SPDX-License-Identifier: Apache-2.0
#include "report/report.h"

#include <slipstream/base/error.h>
#include <slipstream/base/version.h>

#include <algorithm>
#include <map>

#include "checkpoint/atomic_file.h"
#include "report/html.h"
#include "report/page_data.h"
#include "report/tables.h"

namespace slipstream {
namespace {

// Replaces every {{name}} of the template, in one pass: inserted text is not searched again.
std::string filled(std::string_view page, const std::map<std::string_view, std::string>& values) {
  std::string text;
  for (;;) {
    const std::size_t open = page.find("{{"), close = page.find("}}", open);
    if (close == std::string_view::npos) return text.append(page);
    const std::string_view name = page.substr(open + 2, close - open - 2);
    const auto value = values.find(name);
    check(value != values.end(), "the report's page has a place for '{}', which nobody fills", name);
    text.append(page.substr(0, open)).append(value->second);
    page.remove_prefix(close + 2);
  }
}

std::string section(std::string_view id, std::string_view title, std::string_view about, const std::string& html) {
  if (html.empty()) return "";
  return fmt::format("<section id=\"{}\"><h2>{}</h2><p>{}</p>\n{}</section>\n", id, title, about, html);
}

}  // namespace

std::vector<Run> read_runs(const std::vector<std::string>& folders) {
  if (folders.empty())
    fail<ConfigError>("a report needs at least one run: the --out directory of a `slipstream train`");
  std::vector<Run> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder));
  std::map<std::string, int> named;
  for (const Run& run : runs) ++named[run.name];
  for (Run& run : runs) {
    if (named[run.name] > 1) run.name = run.path;
  }
  return runs;
}

namespace {

// The tables of the page, by the names of their places (data-table).
std::map<std::string, std::string> tables_of(const std::vector<Run>& runs) {
  return {{"summary", summary_table(runs)},
          {"changes", section("changes", "Faults and recoveries",
                              "When workers were lost or joined, and how long the others took to go on. The curves "
                              "above mark these moments.",
                              changes_table(runs))},
          {"decisions", section("decisions", "What the strategies decided",
                                "Plans by layer and other news that the ledger holds, in each strategy's own words.",
                                decisions(runs))}};
}

std::string page_of(const std::string& title, const std::string& connect, const std::vector<Run>& runs,
                    const GridPart& grid, const std::string& data) {
  const PageParts& parts = page_parts();
  std::map<std::string, std::string> tables = tables_of(runs);
  return filled(parts.html, {{"title", escape_html(title)},
                             {"connect", connect},
                             {"version", escape_html(version())},
                             {"style", std::string(parts.css)},
                             {"grid", grid.html},
                             {"grid_data", grid.html.empty() ? "null" : escape_script_json(grid.data)},
                             {"summary_hidden", runs.empty() ? " hidden" : ""},
                             {"summary_title", grid.html.empty() ? "Summary" : "Runs, one of each contender"},
                             {"summary", tables["summary"]},
                             {"changes", tables["changes"]},
                             {"decisions", tables["decisions"]},
                             {"data", escape_script_json(data)},
                             {"chart_js", std::string(parts.chart_js)},
                             {"script", std::string(parts.js)}});
}

}  // namespace

std::string report_page(const std::vector<Run>& runs, const GridPart& grid) {
  const std::string title = !grid.html.empty() ? grid.title
                            : runs.size() == 1 ? "Report of " + runs.front().name
                                               : fmt::format("Report of {} runs", runs.size());
  return page_of(title, "", runs, grid, page_data(runs));
}

std::string live_page(const Run& run) {
  return page_of(run.name + ", live", " connect-src 'self';", {run}, {}, live_data(run));
}

std::string live_data(const Run& run) { return live_page_data(run, tables_of({run})); }

void write_report(const std::vector<Run>& runs, const std::filesystem::path& file, const GridPart& grid) {
  write_atomically(file, report_page(runs, grid));
}

}  // namespace slipstream
