#include "launcher/cli/check_options.hpp"

#include <CLI/CLI.hpp>

namespace troupe {

std::string_view CheckArguments::summary() const {
  return "Says what would run and what each worker would hold, and whether the job can: the "
         "model, the memory, the input, the output, and other hosts, where it starts agents that "
         "look "
         "and end. Writes nothing.";
}

std::string CheckArguments::details() const {
  return R"(Examples:
  launcher check --config cluster.yaml
  launcher check --config cluster.yaml -i in.jsonl -o answers.jsonl
On a login node without GPUs, for a job on nodes that have eight:
  launcher check --config cluster.yaml --assume-gpu H200:8

Exit codes:
  0   the job can run
  1   it can, but among the first lines of the input are some that would have
      error lines
  2   it would be refused or could not start; what to change is told)";
}

void CheckArguments::declare(CLI::App& app) {
  run_.declare(app);
  declare_assumed_gpus(app, assumed_gpus_);
}

Result<CheckOptions> CheckArguments::judge() const {
  CheckOptions options;
  TROUPE_TRY(options.run, run_.judge());
  TROUPE_TRY(options.assumed_gpus, assumed_gpus(assumed_gpus_));
  return options;
}

void declare_assumed_gpus(CLI::App& app, std::string& value) {
  app.add_option("--assume-gpu", value,
                 "the GPUs of the machine that the job is meant for, whatever this one has: a name "
                 "or a memory size, and how many, as H200:8 or 80GB:4; or none")
      ->type_name("GPU:COUNT")
      ->expected(1);
}

Result<std::optional<Gpus>> assumed_gpus(const std::string& value) {
  if (value.empty()) return std::optional<Gpus>();
  auto gpus = parse_gpus(value);
  if (!gpus.ok()) {
    return fail(ErrorCode::invalid_argument, "--assume-gpu {}: {}", value, gpus.error().message);
  }
  return std::optional(*gpus);
}

}  // namespace troupe
