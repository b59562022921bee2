#include "launcher/cli/command_line.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "launcher/cli/known_options.hpp"
#include "launcher/config/config_reference.hpp"
#include "launcher/config/nearest.hpp"

namespace troupe {
namespace {

constexpr auto commands = std::to_array<std::string_view>({"check", "bench", "init", "reference"});

EarlyExit refuse(std::string_view message) {
  return {ExitCode::refused, fmt::format("launcher: {}\n", message), true};
}

/// The options of one command, before they are judged.
struct RawOptions {
  std::vector<std::string> configs;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<std::string> sets;
  std::string log_level = "info";
  bool overwrite = false;
  std::string resume;
  std::string retry_errors;
  bool quiet = false;
  bool json_progress = false;
  std::int64_t show_answers = 0;
  RawBenchOptions bench;
};

void declare(CLI::App& app, CommandLine::Command command, RawOptions& raw) {
  app.set_help_flag();  // help is ours: it comes before any other complaint
  app.allow_extras();   // so that the nearest option can be named
  app.add_option("--config", raw.configs)->allow_extra_args(false);
  app.add_option("--set", raw.sets)->allow_extra_args(false);
  app.add_option("--log-level", raw.log_level)->expected(1);
  app.add_flag("--quiet,-q", raw.quiet);
  if (command == CommandLine::Command::bench) {
    raw.bench.declare(app);
    return;
  }
  app.add_option("--input", raw.inputs)->allow_extra_args(false);
  app.add_option("--output", raw.outputs)->allow_extra_args(false);
  app.add_flag("--overwrite", raw.overwrite);
  app.add_flag("--resume{auto}", raw.resume);
  app.add_flag("--retry-errors{all}", raw.retry_errors);
  app.add_flag("--json-progress", raw.json_progress);
  app.add_option("--show-answers", raw.show_answers)->expected(1)->check(CLI::NonNegativeNumber);
}

std::string about_unknown_word(const std::string& word) {
  if (word.ends_with(".yaml") || word.ends_with(".yml")) {
    return fmt::format("{} needs --config before it: --config {}", word, word);
  }
  const auto near = nearest(word, commands);
  if (!near.empty()) return fmt::format("unknown command {}; did you mean {}?", word, near);
  return fmt::format("unexpected argument {}; try launcher --help", word);
}

/// What to say of an argument that `app`, the options of `command`, has left over.
std::string about_unknown(const CLI::App& app, const std::string& argument,
                          CommandLine::Command command) {
  const std::string name = argument.substr(0, argument.find('='));
  if (!name.starts_with('-')) return about_unknown_word(name);
  std::vector<std::string> known = option_names(app);
  known.emplace_back("--version");
  if (command != CommandLine::Command::bench) {
    return about_unknown_option(name, known, "launcher --help");
  }
  CLI::App others;
  RawOptions unused;
  declare(others, CommandLine::Command::run, unused);
  const auto of_run = option_names(others);
  if (std::find(of_run.begin(), of_run.end(), name) != of_run.end()) {
    return fmt::format("{} is not for bench", name);
  }
  return about_unknown_option(name, known, "launcher bench --help");
}

std::variant<CommandLine, EarlyExit> judge(CommandLine::Command command, const RawOptions& raw) {
  CommandLine line;
  line.command = command;
  if (raw.configs.empty()) {
    return refuse(
        "which topology? Give --config FILE, a cluster YAML;\n"
        "configs/ has some ready to run, e.g.\n"
        "  launcher --config configs/demo/cluster.yaml");
  }
  for (const auto* values : {&raw.configs, &raw.inputs, &raw.outputs}) {
    const char* name = values == &raw.configs  ? "config"
                       : values == &raw.inputs ? "input"
                                               : "output";
    if (values->size() > 1) return refuse(fmt::format("--{} is given more than once", name));
    if (!values->empty() && values->front().empty()) {
      return refuse(fmt::format("--{} needs a file name, found an empty one", name));
    }
  }
  line.config_path = raw.configs.front();
  for (const std::string& set : raw.sets) {
    auto parsed = parse_override(set);
    if (!parsed) return refuse(parsed.error().message);
    line.overrides.push_back(std::move(*parsed));
  }
  for (const std::string& path : raw.inputs) {
    line.overrides.push_back({fmt::format("--input {}", path), "job.input", path});
  }
  for (const std::string& path : raw.outputs) {
    line.overrides.push_back({fmt::format("--output {}", path), "job.output", path});
  }
  if (!raw.resume.empty()) {
    if (raw.overwrite) return refuse("give --resume or --overwrite, not both");
    line.overrides.push_back({fmt::format("--resume={}", raw.resume), "job.resume", raw.resume});
    line.resume_asked = raw.resume != "never";
  }
  if (!raw.retry_errors.empty()) {
    if (raw.overwrite) return refuse("give --retry-errors or --overwrite, not both");
    line.retry_errors.emplace();
    std::istringstream codes(raw.retry_errors == "all" ? "" : raw.retry_errors);
    for (std::string code; std::getline(codes, code, ',');) {
      if (!code.empty()) line.retry_errors->push_back(code);
    }
  }
  const auto level = log::parse_level(raw.log_level);
  if (!level) return refuse(fmt::format("--log-level: {}", level.error().message));
  line.log_level = *level;
  line.overwrite = raw.overwrite;
  if (raw.quiet && raw.json_progress) return refuse("give --quiet or --json-progress, not both");
  line.quiet = raw.quiet;
  line.json_progress = raw.json_progress;
  line.show_answers = raw.show_answers;
  return line;
}

}  // namespace

std::variant<CommandLine, EarlyExit> parse_command_line(std::span<const std::string> arguments) {
  const auto has = [&](std::string_view a, std::string_view b) {
    return std::any_of(arguments.begin(), arguments.end(),
                       [&](const std::string& given) { return given == a || given == b; });
  };
  const std::string first = arguments.empty() ? "" : arguments.front();
  const auto command = first == "check"   ? CommandLine::Command::check
                       : first == "bench" ? CommandLine::Command::bench
                                          : CommandLine::Command::run;
  const bool bench = command == CommandLine::Command::bench;
  if (has("--help", "-h") || first == "help") {
    return EarlyExit{ExitCode::all_answered, bench ? bench_help_text() : help_text(), false};
  }
  if (has("--version", "--version")) {
    return EarlyExit{ExitCode::all_answered, version_text(), false};
  }
  if (first == "reference") {
    if (arguments.size() == 1) {
      return EarlyExit{ExitCode::all_answered, configuration_reference(), false};
    }
    return refuse(fmt::format("reference takes no arguments, found {}", arguments[1]));
  }
  std::vector<std::string> rest(arguments.begin(), arguments.end());
  if (command != CommandLine::Command::run) rest.erase(rest.begin());
  std::optional<BenchOptions::Kind> kind;
  if (bench) {
    kind = rest.empty() ? std::nullopt : bench_kind(rest.front());
    if (!kind) {
      return refuse(
          fmt::format("bench what? throughput, latency, startup, sweep, ops, collectives, weights "
                      "or schedule{}",
                      rest.empty() ? "" : ", not " + rest.front()));
    }
    rest.erase(rest.begin());
  }
  CLI::App app;
  RawOptions raw;
  declare(app, command, raw);
  try {
    std::reverse(rest.begin(), rest.end());  // CLI11 takes a vector from its end
    app.parse(std::move(rest));
  } catch (const CLI::Error& error) {
    return refuse(fmt::format("{}; try launcher {}--help", error.what(), bench ? "bench " : ""));
  }
  const auto extras = app.remaining();
  if (!extras.empty()) return refuse(about_unknown(app, extras.front(), command));
  auto judged = judge(command, raw);
  if (auto* line = std::get_if<CommandLine>(&judged); line != nullptr && kind) {
    auto options = raw.bench.judge(*kind);
    if (!options.ok()) return refuse(options.error().message);
    line->bench = *std::move(options);
  }
  return judged;
}

std::string version_text() { return "launcher (Troupe) 0.1.0\n"; }

std::string help_text() {
  return R"(launcher: answers a file of requests with a language model that is spread over
several worker processes.

  launcher --config FILE [options]         run the job
  launcher check --config FILE [options]   say what would run, start nothing
  launcher init [options]                  write a YAML for this machine: see
                                           launcher init --help
  launcher bench KIND --config FILE ...    measure: see launcher bench --help
  launcher reference                       print the reference of all YAML keys

Examples
  launcher --config configs/demo/cluster.yaml
  launcher init --model ~/models/qwen3 && launcher check --config cluster.yaml
  launcher --config c.yaml --input in.jsonl --output answers.jsonl
  launcher --config c.yaml --set parallel.tensor_parallel_size=2
  launcher check --config c.yaml

Options
  --config FILE      the topology: model, parallel sizes, engine, files (YAML)
  --input FILE       the requests; instead of job.input
  --output FILE      the answers; instead of job.output
  --set KEY=VALUE    a key of the YAML by its dotted name, e.g.
                     engine.max_num_seqs=64; may be given several times
  --resume[=HOW]     go on with the output of a job that broke off, as happens
                     anyway if it is of the same job; refuses a job
                     that cannot be gone on with. =force: whatever has changed;
                     =never: refuse an output that has content
  --retry-errors[=CODE,...]
                     ask the requests of error lines again, all or those of
                     some codes; their old lines are taken out of the output
  --overwrite        replace an output file that has content
  -q, --quiet        no progress; errors are still told
  --json-progress    progress as JSON, a line a second on stderr, for programs
  --show-answers N   print the texts of the first N answers at the end
  --log-level LEVEL  debug, info (default), warning or error
  --version          print the version
  -h, --help         print this text

Files
  input     OpenAI batch format, a JSON object a line: custom_id, method
            "POST", url "/v1/chat/completions" or "/v1/completions", body;
            gzip and zstd are unpacked; "-" is standard input
  output    an answer or an error a line, whole lines only, in the order the
            requests finish; custom_id says whose it is. What is in it is not
            asked again: the same command goes on where a job broke off.
            Packed if it ends in .gz or .zst; "-" is standard output
  OUTPUT.job/   logs of all processes of the job, its lock and fingerprint
  Relative paths count from the folder the launcher is started in.

Signals
  Ctrl-C once (or SIGTERM, SIGHUP): take no new requests, finish those that
  run within job.grace_seconds, exit 4
  Ctrl-C twice: stop at once, exit 130

Exit codes
  0    every request was answered
  1    finished; the output has error lines
  2    refused before anything started (command line, YAML, checkpoint, files)
  3    failed; the same command goes on
  4    ended early by a signal; the same command goes on
  130  stopped by a second Ctrl-C
)";
}

}  // namespace troupe
