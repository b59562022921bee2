#include "launcher/cli/config_arguments.hpp"

#include <CLI/CLI.hpp>

namespace troupe {

Result<Config> ConfigSource::load(Purpose purpose) const {
  if (path.empty()) return parse_config("{}", "the command line", overrides, purpose);
  return load_config(path, overrides, purpose);
}

void ConfigArguments::declare(CLI::App& app) {
  app.add_option("--config,-c", configs_, "the topology: model, parallel sizes, engine, files")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option("--model,-m", models_,
                 "the checkpoint's folder; instead of model.path. Without --config all else is as "
                 "by default")
      ->type_name("FOLDER")
      ->allow_extra_args(false);
  app.add_option("--set", sets_,
                 "a key of the YAML by its dotted name, e.g. engine.max_num_seqs=64; may be given "
                 "several times")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

Result<ConfigSource> ConfigArguments::judge() const {
  ConfigSource source;
  TROUPE_TRY(const auto config, given_once("--config", configs_));
  TROUPE_TRY(const auto model, given_once("--model", models_));
  if (!config && !model) {
    return fail(ErrorCode::invalid_argument,
                "which topology? Give --config FILE, a cluster YAML, or --model FOLDER;\n"
                "configs/ has some ready to run, e.g.\n"
                "  launcher --config configs/demo/cluster.yaml");
  }
  source.path = config.value_or("");
  for (const std::string& set : sets_) {
    TROUPE_TRY(auto parsed, parse_override(set));
    source.overrides.push_back(std::move(parsed));
  }
  if (model) {
    source.overrides.push_back({fmt::format("--model {}", *model), "model.path", *model});
  }
  return source;
}

void FileArguments::declare(CLI::App& app) {
  app.add_option("--input,-i", inputs_, "the requests; instead of job.input")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option("--output,-o", outputs_, "the answers; instead of job.output")
      ->type_name("FILE")
      ->allow_extra_args(false);
}

Result<void> FileArguments::add_to(ConfigSource& source) const {
  auto& overrides = source.overrides;
  TROUPE_TRY(const auto input, given_once("--input", inputs_));
  if (input) overrides.push_back({fmt::format("--input {}", *input), "job.input", *input});
  TROUPE_TRY(const auto output, given_once("--output", outputs_));
  if (output) overrides.push_back({fmt::format("--output {}", *output), "job.output", *output});
  return {};
}

Result<std::optional<std::string>> given_once(std::string_view option,
                                              const std::vector<std::string>& values) {
  if (values.empty()) return std::optional<std::string>();
  if (values.size() > 1) {
    return fail(ErrorCode::invalid_argument, "{} is given more than once", option);
  }
  if (values.front().empty()) {
    return fail(ErrorCode::invalid_argument, "{} needs a name, found an empty one", option);
  }
  return std::optional(values.front());
}

}  // namespace troupe
