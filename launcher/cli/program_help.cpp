#include "launcher/cli/program_help.hpp"

namespace troupe {

Subcommand program_row() {
  return {.name = "",
          .summary =
              "launcher: answers a file of requests with a language model that is spread "
              "over several worker processes.",
          .details = R"(Without a command it runs a job: launcher --config FILE is launcher run
--config FILE. launcher COMMAND --help tells the options of each.

Examples:
  launcher --config configs/demo/cluster.yaml
  launcher init --model ~/models/Qwen3-0.6B && launcher check -c cluster.yaml
  launcher run -c cluster.yaml -i in.jsonl -o answers.jsonl)"};
}

Subcommand bench_row() {
  return {.name = "bench",
          .summary = "Measures a model on a topology, or one part of the engine.",
          .details = R"(launcher bench COMMAND --help tells the options of each.

Examples:
  launcher bench throughput --config configs/one-worker.yaml
  launcher bench latency --config c.yaml --num-prompts 20 --output-len 64
  launcher bench sweep --config c.yaml --at-once 1,4,16,64 --html sweep.html
  launcher bench faults --config c.yaml --count 30
A model of which there is only its config.json:
  launcher bench throughput --config c.yaml --set model.load_format=dummy)"};
}

}  // namespace troupe
