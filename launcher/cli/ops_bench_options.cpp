#include "launcher/cli/ops_bench_options.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>

namespace troupe {

std::variant<OpsBenchOptions, EarlyExit> parse_ops_bench_options(
    std::span<const std::string> arguments) {
  OpsBenchOptions options;
  CLI::App app;
  app.add_option("--rows", options.rows)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--context", options.context)->check(CLI::Range(1, 1 << 24));
  app.add_option("--seconds", options.seconds)->check(CLI::Range(0.001, 60.0));
  const PartBench bench{"launcher bench ops --help", ops_bench_help_text(), "model"};
  if (auto early = parse_part_bench(app, bench, arguments, options)) return *std::move(early);
  std::ranges::sort(options.rows);
  const auto same = std::ranges::unique(options.rows);
  options.rows.erase(same.begin(), same.end());
  return options;
}

std::string ops_bench_help_text() {
  return R"(launcher bench ops --config FILE [options]: times the operations of one
worker of FILE's model on its device, on random numbers, each beside what the
device could do at most: its bytes at the speed of a large copy, or its
multiply-adds at that of a large product, whichever takes longer. Starts no
engine and reads no weights.

For as many rows as sequences fit in a step (engine.max_num_seqs) the table
ends with a decode step of them: the sum of these least times (the roofline),
and of the times measured. Rows beyond are prefill.

  --config FILE     the model, its dtype, the device and tensor_parallel_size
  --set KEY=VALUE   a key of the YAML by its dotted name; may be given often
  --rows LIST       tokens of a pass (1,8,64,256,4096)
  --context N       tokens of each sequence (512)
  --seconds S       about how long each operation is timed for (0.05)
  --json FILE       all figures, for programs
  -h, --help        print this text
)";
}

}  // namespace troupe
