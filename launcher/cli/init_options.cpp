#include "launcher/cli/init_options.hpp"

#include <CLI/CLI.hpp>

#include "launcher/cli/check_options.hpp"

namespace troupe {

std::string_view InitArguments::summary() const {
  return "Writes a cluster YAML for a model and this machine to begin with, with comments. What it "
         "writes, launcher check accepts.";
}

std::string InitArguments::details() const {
  return R"(Examples:
  launcher init --model ~/models/Qwen3-0.6B
  launcher check --config cluster.yaml
  launcher run --config cluster.yaml -i in.jsonl -o answers.jsonl
On standard output:
  launcher init --model ~/models/Qwen3-0.6B -o -
For a machine with eight GPUs of 80 GB:
  launcher init --model /models/Llama-3.3-70B --assume-gpu H100:8
For three hosts that ssh reaches, and for the nodes of a Slurm allocation:
  launcher init --model /models/Qwen3-8B --hosts h1,h2,h3
  salloc --nodes=4 launcher init --model /models/Qwen3-8B

How the model is laid out follows from its size and the machine's GPUs, their
memory and the cores; the file says why. Exit codes: 0 written; 2 refused.)";
}

void InitArguments::declare(CLI::App& app) {
  app.add_option("--model,-m", options_.model,
                 "a checkpoint: config.json, safetensors, tokenizer.json; without it the demo's, "
                 "where configs/demo/ is")
      ->type_name("FOLDER")
      ->expected(1);
  app.add_option("--output,-o", options_.output,
                 "what to write; a file that is there is left as it is, and the command refused")
      ->type_name("FILE")
      ->expected(1)
      ->capture_default_str();
  app.add_option("--hosts", options_.hosts,
                 "the machines that ssh reaches, a node each; without it the nodes of the Slurm "
                 "allocation that this runs in, or this machine")
      ->type_name("HOST,...")
      ->delimiter(',');
  declare_assumed_gpus(app, assumed_gpus_);
}

Result<InitOptions> InitArguments::judge() const {
  InitOptions options = options_;
  if (options.output.empty()) {
    return fail(ErrorCode::invalid_argument, "--output needs a file name, found an empty one");
  }
  TROUPE_TRY(options.assumed_gpus, assumed_gpus(assumed_gpus_));
  return options;
}

}  // namespace troupe
