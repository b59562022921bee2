#include "launcher/cli/init_options.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "launcher/cli/known_options.hpp"

namespace troupe {
namespace {

EarlyExit refuse(std::string_view message) {
  return {ExitCode::refused, fmt::format("launcher: {}\n", message), true};
}

}  // namespace

std::variant<InitOptions, EarlyExit> parse_init_options(std::span<const std::string> arguments) {
  const auto is_help = [](const std::string& given) { return given == "--help" || given == "-h"; };
  if (std::any_of(arguments.begin(), arguments.end(), is_help)) {
    return EarlyExit{ExitCode::all_answered, init_help_text(), false};
  }
  InitOptions options;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();  // so that the nearest option can be named
  app.add_option("--model", options.model)->expected(1);
  app.add_option("--output", options.output)->expected(1);
  try {
    // CLI11 takes a vector from its end.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Error& error) {
    return refuse(fmt::format("{}; try launcher init --help", error.what()));
  }
  if (options.output.empty()) return refuse("--output needs a file name, found an empty one");
  if (app.remaining().empty()) return options;
  const std::string extra = app.remaining().front();
  const std::string name = extra.substr(0, extra.find('='));
  if (!name.starts_with('-')) {
    return refuse(fmt::format("unexpected argument {}; a model's folder follows --model", extra));
  }
  return refuse(about_unknown_option(name, option_names(app), "launcher init --help"));
}

std::string init_help_text() {
  return R"(launcher init: writes a cluster YAML for this machine and a model to begin with,
with comments. What it writes, launcher check accepts.

  launcher init [--model FOLDER] [--output FILE]

Examples
  launcher init --model ~/models/Qwen3-0.6B
  launcher check --config cluster.yaml
  launcher --config cluster.yaml --input in.jsonl --output answers.jsonl
On standard output:
  launcher init --model ~/models/Qwen3-0.6B --output -

Options
  --model FOLDER   a checkpoint: config.json, safetensors, tokenizer.json;
                   without it the demo's, where configs/demo/ is
  --output FILE    what to write; default cluster.yaml. A file that is there is
                   left as it is, and the command refused

How the model is laid out follows from the machine's GPUs and cores; the file
says why. Exit codes: 0 written; 2 refused.
)";
}

}  // namespace troupe
