// SPDX-License-Identifier: Apache-2.0
#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "report/html.h"

namespace slipstream {
namespace {

struct Phase {
  const char *name, *title;
};

constexpr Phase kPhases[] = {
    {"compute", "Forward, backward and reading the batch"},
    {"update", "Moving the weights: the optimizer"},
    {"encode", "The strategy's own work: selecting, compressing, adding up"},
    {"waiting", "Blocked until an operation on the wire is done (exposed): what hiding is to avoid"},
};

std::string head(std::span<const Column> columns) {
  std::string html = "<thead><tr>";
  for (const Column& column : columns) {
    html += fmt::format("<th scope=\"col\" title=\"{}\">{}</th>", escape_html(column.title), escape_html(column.name));
  }
  return html + "</tr></thead>";
}

}  // namespace

std::string table(std::string_view caption, std::span<const Column> columns, const std::string& rows) {
  return fmt::format(
      "<div class=\"scroll\" tabindex=\"0\"><table><caption>{}</caption>{}<tbody>{}</tbody></table></div>\n",
      escape_html(caption), head(columns), rows);
}

std::string cell(const std::string& html, std::string_view kind) {
  return kind.empty() ? fmt::format("<td>{}</td>", html) : fmt::format("<td class=\"{}\">{}</td>", kind, html);
}

std::string small(const std::string& text, bool warns) {
  return text.empty() ? "" : fmt::format("<small{}>{}</small>", warns ? " class=\"warn\"" : "", escape_html(text));
}

std::string phase_bar(const Phases& mean) {
  const double sum = mean.sum_ms();
  if (!(sum > 0)) return "–";
  const double parts[] = {mean.compute_ms, mean.update_ms, mean.encode_ms, mean.waiting_ms};
  std::string bar, text;
  for (std::size_t i = 0; i < std::size(kPhases); ++i) {
    const std::string title = fmt::format("{}: {:.1f} ms. {}.", kPhases[i].name, parts[i], kPhases[i].title);
    bar += fmt::format("<i class=\"{}\" style=\"width:{:.2f}%\" title=\"{}\"></i>", kPhases[i].name,
                       100 * std::max(parts[i], 0.0) / sum, escape_html(title));
    text += fmt::format("<span title=\"{}\"><b class=\"key {}\"></b>{} {:.1f}</span> ", escape_html(title),
                        kPhases[i].name, kPhases[i].name, parts[i]);
  }
  return fmt::format("<div class=\"bar\">{}</div><small class=\"parts\">{}</small>", bar, text);
}

}  // namespace slipstream
