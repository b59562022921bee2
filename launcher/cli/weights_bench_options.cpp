#include "launcher/cli/weights_bench_options.hpp"

#include <CLI/CLI.hpp>

namespace troupe {

std::variant<WeightsBenchOptions, EarlyExit> parse_weights_bench_options(
    std::span<const std::string> arguments) {
  WeightsBenchOptions options;
  CLI::App app;
  app.add_option("--make", options.make_folder)->expected(1);
  app.add_option("--repeat", options.repeat)->check(CLI::Range(1, 1000));
  app.add_flag("--cold", options.cold);
  const PartBench bench{"launcher bench weights --help", weights_bench_help_text(), "model"};
  if (auto early = parse_part_bench(app, bench, arguments, options)) return *std::move(early);
  return options;
}

std::string weights_bench_help_text() {
  return R"(launcher bench weights --config FILE [options]: reads the weights of FILE's
model into the memory of one device, as a worker of it that is alone does, and
tells how fast, beside what bounds it: a copy of page-locked memory to the
device, and a plain reading of the same files by as many threads.

  --config FILE     the model, its dtype and the device
  --set KEY=VALUE   a key of the YAML by its dotted name; may be given often
  --make FOLDER     first write a checkpoint of the model's shapes into FOLDER,
                    with random numbers, and read that: for a model of which
                    there is only its config.json. Not a model's own folder
  --repeat N        how often they are read (3)
  --cold            drop the files from the page cache before each reading
  --json FILE       all figures, for programs
  -h, --help        print this text
)";
}

}  // namespace troupe
