// SPDX-License-Identifier: Apache-2.0
#include "report/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "report/html.h"
#include "report/news.h"
#include "report/table.h"

namespace slipstream {
namespace {

const Column kSummary[] = {
    {"run", "The name of the run's --out directory"},
    {"strategy", "The algorithm that decides what is sent, when, and how the model is corrected"},
    {"result",
     "What the training came to on the test set, after the last step; the loss of the last batch where nothing was "
     "tested. Compare speeds only between runs whose results satisfy you"},
    {"step ms", "Median time of one step, without the first five; below it samples of all workers per second"},
    {"speed-up",
     "Samples per second, divided by those of the first ssgd run here with the same task, model, network, workers and "
     "batch"},
    {"efficiency", "Compute and update time as a share of all step time: 100 % means that the network costs nothing"},
    {"where the time of a step goes",
     "Mean milliseconds per step over all ranks, without the first five steps; the four parts add up to the mean step"},
    {"hidden", "Share of the time on the wire during which the worker was not blocked"},
    {"sent per step", "Bytes that one worker sends per step, mean over all steps"},
    {"workers", "Workers that computed at the end (+ servers); below it the network of the lab they ran in, if any"},
    {"model", "The model, its parameters, and the task"},
    {"steps", "Steps of this run, seconds of training (without loading and evaluation), and when it ended"},
    {"options", "Of the strategy, as it ran"},
};

std::string options_text(const Run& run) {
  std::string text;
  for (const auto& [key, value] : run.options) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", key, value);
  return text;
}

std::string count_text(std::int64_t count) {
  if (count < 1000) return std::to_string(count);
  return count < 1'000'000 ? fmt::format("{:.3g}k", static_cast<double>(count) / 1e3)
                           : fmt::format("{:.3g}M", static_cast<double>(count) / 1e6);
}

// "2026-11-17 09:12" of "2026-11-17T09:12:49Z"; any other text as it is.
std::string day_text(const std::string& date) {
  return date.size() == 20 && date[10] == 'T' ? date.substr(0, 10) + " " + date.substr(11, 5) : date;
}

std::string result_cell(const Run& run) {
  std::string html = fmt::format("<strong>{}</strong>{}", result_text(run),
                                 small(run.metric == "test_accuracy" ? "test accuracy"
                                       : run.metric == "test_loss"   ? "test loss"
                                                                     : "last batch's loss"));
  if (run.interrupted) html += "<small class=\"warn\">interrupted</small>";
  if (!run.agreement) html += "<small class=\"warn\">the ranks' weights differ: a bug</small>";
  return html;
}

std::string speedup_cell(const Run& run, const std::vector<Run>& runs) {
  const Run* base = baseline_of(run, runs);
  if (base == nullptr)
    return "<span title=\"No ssgd run here has the same task, model, network, workers and batch\">–</span>";
  if (base == &run) return "1.00 ×" + small("the baseline");
  return fmt::format("{} ×", fixed_text(run.samples_per_second / base->samples_per_second, 2)) +
         small(fmt::format("{} there", result_text(*base)));
}

// A curve's colour follows from the run's place among those it is drawn with.
std::string summary_row(const Run& run, std::size_t index, const std::vector<Run>& runs) {
  std::string html =
      fmt::format("<th scope=\"row\" title=\"{}\"><b class=\"key\" style=\"background:var(--run{})\"></b>{}</th>",
                  escape_html(run.path), index % 8, escape_html(run.name));
  html += cell(escape_html(run.strategy));
  html += cell(result_cell(run), "n");
  html += cell(fixed_text(run.step_ms_median, 1) + small(fixed_text(run.samples_per_second, 0) + " samples/s"), "n");
  html += cell(speedup_cell(run, runs), "n");
  html += cell(percent_text(run.efficiency), "n");
  html += cell(phase_bar(run.mean), "split");
  html += cell(percent_text(run.hidden_fraction), "n");
  html += cell(bytes_text(run.bytes_sent_per_step), "n");
  html += cell(std::to_string(run.workers) + (run.servers > 0 ? fmt::format(" + {}", run.servers) : "") +
                   small(run.network.empty() ? "not shaped" : run.network),
               "n");
  html += cell(
      escape_html(run.model) + small(fmt::format("{} parameters", count_text(run.parameters))) + small(run.task), "n");
  html +=
      cell(std::to_string(run.steps) + small(fixed_text(run.wall_seconds, 1) + " s") + small(day_text(run.date)), "n");
  html += cell(small(options_text(run)), "wide");
  return "<tr>" + html + "</tr>\n";
}

}  // namespace

const Run* baseline_of(const Run& run, const std::vector<Run>& runs) {
  for (const Run& base : runs) {
    const bool is_dense =
        base.strategy == "ssgd" && std::none_of(base.options.begin(), base.options.end(),
                                                [](auto& o) { return o.first == "wire" && o.second != "fp32"; });
    const bool is_alike = base.task == run.task && base.model == run.model && base.network == run.network &&
                          base.group == run.group && base.workers == run.workers && base.batch == run.batch;
    if (is_dense && is_alike && base.samples_per_second > 0) return &base;
  }
  return nullptr;
}

std::string result_text(const Run& run) {
  if (run.metric.empty()) return fixed_text(run.final_loss, 4);
  return run.metric == "test_accuracy" ? fixed_text(100 * run.metric_value, 2) + " %" : fixed_text(run.metric_value, 4);
}

std::string summary_table(const std::vector<Run>& runs) {
  std::string rows;
  std::map<std::string, std::size_t> places;
  for (const Run& run : runs) rows += summary_row(run, places[run.group]++, runs);
  return table("All runs", kSummary, rows);
}

std::string changes_table(const std::vector<Run>& runs) {
  const Column kColumns[] = {
      {"run", "The name of the run"},
      {"at", "Seconds of training"},
      {"step", "The step that came next"},
      {"what", "Workers that were lost, and workers that joined"},
      {"workers", "How many went on"},
      {"recovery ms", "From noticing the change until the next group trains, the longest of all ranks"},
      {"why", "As the workers told it"},
  };
  std::string rows;
  for (const Run& run : runs) {
    for (const GroupChange& change : run.changes) {
      std::string what;
      if (change.lost > 0) what += fmt::format("<b class=\"key lost\"></b>{} lost ", change.lost);
      if (change.joined > 0) what += fmt::format("<b class=\"key joined\"></b>{} joined", change.joined);
      rows += "<tr>" + cell(escape_html(run.name)) + cell(fixed_text(change.seconds, 2) + " s", "n") +
              cell(std::to_string(change.step), "n") + cell(what, "n") + cell(std::to_string(change.workers), "n") +
              cell(fixed_text(change.recovery_ms, 0), "n") + cell(escape_html(change.why), "wide") + "</tr>\n";
    }
  }
  return rows.empty() ? "" : table("Faults and recoveries", kColumns, rows);
}

namespace {

// The latest news about every layer; one column per topic.
std::string layers_table(const Run& run) {
  struct Said {
    std::int64_t step;
    NewsPiece piece;
  };
  std::map<std::string, Said> topics;  // "plan", "memory": the first word
  std::vector<std::string> order, layers;
  for (const NewsLine& line : run.news) {
    for (NewsPiece& piece : take_apart(line.text)) {
      if (piece.layers.empty()) continue;
      for (const auto& [layer, what] : piece.layers) {
        if (std::find(layers.begin(), layers.end(), layer) == layers.end()) layers.push_back(layer);
      }
      const std::string topic = piece.text.substr(0, piece.text.find(' '));
      if (!topics.contains(topic)) order.push_back(topic);
      topics.insert_or_assign(topic, Said{line.step, std::move(piece)});
    }
  }
  if (order.empty()) return "";
  std::string top = "<th scope=\"col\" title=\"In the order in which backward reaches them\">layer</th>";
  for (const std::string& topic : order) {
    const Said& said = topics.at(topic);
    top += fmt::format("<th scope=\"col\" title=\"The latest: news of step {0}\">{1}<small>step {0}</small></th>",
                       said.step, escape_html(said.piece.text));
  }
  std::string rows;
  for (const std::string& layer : layers) {
    rows += fmt::format("<tr><th scope=\"row\">{}</th>", escape_html(layer));
    for (const std::string& topic : order) {
      std::string text = "–";
      for (const auto& [name, what] : topics.at(topic).piece.layers) text = name == layer ? what : text;
      rows += cell(escape_html(text));
    }
    rows += "</tr>\n";
  }
  return fmt::format(
      "<div class=\"scroll\" tabindex=\"0\"><table class=\"layers\"><caption>{}: by "
      "layer</caption><thead><tr>{}</tr></thead>"
      "<tbody>{}</tbody></table></div>\n",
      escape_html(run.name), top, rows);
}

// Leaves out what the table above shows by layer; pointing at the line shows it.
std::string news_cell(const std::string& news) {
  std::string heads;
  for (const NewsPiece& piece : take_apart(news)) {
    heads += fmt::format("{}{}{}", heads.empty() ? "" : "; ", piece.text, piece.layers.empty() ? "" : ", by layer");
  }
  return fmt::format("<td class=\"wide\" title=\"{}\">{}</td>", escape_html(news), escape_html(heads));
}

std::string news_table(const Run& run) {
  const Column kColumns[] = {
      {"step", "The step after which it was decided"},
      {"at", "Seconds of training"},
      {"news", "What the strategy decided or measured, in its own words; point at a line for what it says by layer"}};
  std::string rows;
  for (const NewsLine& line : run.news) {
    rows += "<tr>" + cell(std::to_string(line.step), "n") + cell(fixed_text(line.seconds, 2) + " s", "n") +
            news_cell(line.text) + "</tr>\n";
  }
  return fmt::format("<details{}><summary>{}: {} line{} of news</summary>{}</details>\n",
                     run.news.size() <= 12 ? " open" : "", escape_html(run.name), run.news.size(),
                     run.news.size() == 1 ? "" : "s", table(run.name + ": news", kColumns, rows));
}

}  // namespace

std::string decisions(const std::vector<Run>& runs) {
  std::string html;
  for (const Run& run : runs) {
    if (!run.news.empty()) html += layers_table(run) + news_table(run);
  }
  return html;
}

}  // namespace slipstream
