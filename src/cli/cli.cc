// SPDX-License-Identifier: Apache-2.0
#include <slipstream/base/error.h>
#include <slipstream/base/version.h>
#include <slipstream/cli/cli.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/wrap.h"
#include "cli/verbs.h"

namespace slipstream {
namespace {

constexpr const char* kAbout =
    "Slipstream trains neural networks data-parallel over slow networks, without\n"
    "waiting for them.\n"
    "\n"
    "  slipstream train                       the cnn on Fashion-MNIST, 2 local workers\n"
    "  slipstream train --strategy dasgd      the same with another algorithm\n"
    "  slipstream list                        all algorithms\n"
    "  slipstream explain dasgd               what one does, sends and waits for\n"
    "  slipstream plan --link 1gbit --workers 8 --parameters 1e8 --compute-ms 300\n"
    "                                         which one would help, by how much\n"
    "  slipstream report runs/a runs/b        one page that compares runs of --out\n"
    "  slipstream compare --quick             which one helps, and what it costs\n"
    "  slipstream VERB --help                 all flags of a verb\n";

std::string dashed(std::string name) {
  for (char& c : name) c = c == '_' ? '-' : c;
  return name;
}

// Help in lines that fit a terminal of 80 columns.
class Formatter final : public CLI::Formatter {
 public:
  Formatter() { column_width(kColumn); }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrap(CLI::Formatter::make_option_desc(option), kTerminal - kColumn);
  }

 private:
  static constexpr std::size_t kColumn = 34, kTerminal = 80;
};

// The first word that no flag or verb of the command line takes, with the nearest existing one; empty if there is none.
std::string unknown_word(const CLI::App& app) {
  const CLI::App* verb = &app;
  while (!verb->get_subcommands().empty()) verb = verb->get_subcommands().front();
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) return "";
  const auto flag = std::find_if(unknown.begin(), unknown.end(), [](const auto& word) { return word[0] == '-'; });
  const std::string word = flag != unknown.end() ? *flag : unknown.front();
  std::vector<std::string> known;
  if (flag != unknown.end()) {
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  } else {
    for (const CLI::App* other : verb->get_subcommands(nullptr)) known.push_back(other->get_name());
  }
  // Compared without the dashes, which all flags have in common.
  const std::size_t dashes = flag != unknown.end() ? 2 : 0;
  for (std::string& one : known) one.erase(0, dashes);
  std::string name = word.substr(0, word.find('='));
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  std::string near = nearest(name, known);
  if (!near.empty()) near.insert(0, dashes, '-');
  return fmt::format("there is no '{}' here{}", word, near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near));
}

}  // namespace

void add_flag(CLI::App& verb, const Option& option, const std::string& group, Given& given) {
  const auto remember = [&given, name = option.name](const std::string& value) { given.emplace_back(name, value); };
  const std::string flag = "--" + dashed(option.name);
  if (option.kind == "true|false") {
    verb.add_flag_callback(
            flag, [remember] { remember("true"); }, option.help)
        ->group(group);
    return;
  }
  const bool number = option.kind == "integer" || option.kind == "number";
  const std::string range = number && !option.allowed.empty() ? " (" + option.allowed + ")" : "";
  auto* made = verb.add_option_function<std::string>(flag, remember, option.help + range)->group(group);
  made->take_last();  // as usual; the supervisor also adds the worker's placement after the user's own flags
  made->type_name(option.kind);
  if (!option.default_value.empty() && option.default_value != "-1") made->default_str(option.default_value);
}

void apply_flags(const Given& given, OptionSet& options) {
  for (const auto& [name, value] : given) options.set(name, value);
}

namespace {

// What to tell the user about an exception, and the exit code. A failed check is our bug.
std::pair<std::string, int> describe_failure(const std::exception& e) {
  const auto* error = dynamic_cast<const Error*>(&e);
  const int code = error != nullptr ? error->exit_code() : Error("").exit_code();
  const bool ours = code == Error("").exit_code();
  return {
      e.what() + std::string(ours ? "\nThis is a bug in Slipstream; please report it with the command you ran." : ""),
      code};
}

// Reports a worker's failure and exits. Skips destructors: after a failure some would wait for peers that never answer.
[[noreturn]] void leave(const std::exception& e, int supervisor_fd) {
  const auto [text, code] = describe_failure(e);
  if (code == 0) {  // it came too late to an elastic job: nothing went wrong
    if (supervisor_fd < 0) std::fprintf(stderr, "slipstream: %s\n", text.c_str());
    std::_Exit(0);
  }
  if (supervisor_fd < 0 || dynamic_cast<const OrphanedError*>(&e) != nullptr) {
    std::fprintf(stderr, "slipstream: %s\n", text.c_str());
  } else {
    Complaint{code, text, dynamic_cast<const AnnouncedError*>(&e) != nullptr}.tell(supervisor_fd);
  }
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

int launch(const LaunchOptions& options, const Invocation& invocation,
           const std::function<int(const Rendezvous&)>& work) {
  const Placement placement = place(options, process_environment());
  if (placement.supervisor) return supervise(options, placement.workers, invocation.arguments);
  if (placement.at.rank == 0) {
    std::ifstream maps("/proc/self/maps");
    std::stringstream text;
    text << maps.rdbuf();
    if (const auto warning = slow_blas_warning(text.str()); !warning.empty())
      std::fprintf(stderr, "%s\n", warning.c_str());
  }
  try {
    return work(placement.at);
  } catch (const std::exception& e) {
    leave(e, options.supervisor_fd);
  }
}

int run_cli(int argc, char** argv, const Registry& registry, std::vector<std::string> program) {
  CLI::App app(kAbout, "slipstream");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("slipstream ") + version());
  app.formatter(std::make_shared<Formatter>());
  std::vector<std::pair<std::string, Verb>> verbs{{"train", add_train(app)},     {"list", add_list(app)},
                                                  {"explain", add_explain(app)}, {"bench", add_bench(app)},
                                                  {"lab", add_lab(app)},         {"ckpt", add_ckpt(app)},
                                                  {"eval", add_eval(app)},       {"report", add_report(app)},
                                                  {"compare", add_compare(app)}, {"plan", add_plan(app)}};
  // A list of values (--seeds 1 2) ends at `--` and swallows that mark, so CLI11 would take what follows for flags of
  // compare itself. The verb finds it in the Invocation.
  const bool passes_on = argc > 1 && std::string_view(argv[1]) == "compare";
  const auto parsed = passes_on ? std::find(argv, argv + argc, std::string_view("--")) - argv : argc;
  try {
    app.parse(static_cast<int>(parsed), argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    const std::string unknown = unknown_word(app);
    const auto called = app.get_subcommands();
    std::fprintf(stderr, "slipstream: %s; see `slipstream %s--help`\n", unknown.empty() ? e.what() : unknown.c_str(),
                 called.empty() ? "" : (called.front()->get_name() + " ").c_str());
    return ConfigError("").exit_code();
  }

  if (program.empty()) program.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  program.insert(program.end(), argv + 1, argv + argc);
  const Invocation invocation{std::move(program), registry};
  try {
    for (const auto& [name, run] : verbs) {
      if (app.got_subcommand(name)) return run(invocation);
    }
    return 0;
  } catch (const std::exception& e) {
    const auto [text, code] = describe_failure(e);
    std::fprintf(stderr, "slipstream: %s\n", text.c_str());
    return code;
  }
}

}  // namespace slipstream
