#include "launcher/cli/collectives_bench_options.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace troupe {
namespace {

constexpr std::int64_t bytes_of_word = 8;  // of which every message is made
constexpr std::int64_t max_bytes = std::int64_t{1} << 30;

}  // namespace

std::variant<CollectivesBenchOptions, EarlyExit> parse_collectives_bench_options(
    std::span<const std::string> arguments) {
  CollectivesBenchOptions options;
  CLI::App app;
  app.add_option("--bytes", options.bytes)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(bytes_of_word, max_bytes));
  app.add_option("--seconds", options.seconds)->check(CLI::Range(0.001, 60.0));
  const PartBench bench{"launcher bench collectives --help", collectives_bench_help_text(),
                        "topology"};
  if (auto early = parse_part_bench(app, bench, arguments, options)) return *std::move(early);
  const auto odd = std::ranges::find_if(
      options.bytes, [](std::int64_t bytes) { return bytes % bytes_of_word != 0; });
  if (odd != options.bytes.end()) {
    return refuse_bench(fmt::format("--bytes {}: expected a multiple of {}", *odd, bytes_of_word));
  }
  std::ranges::sort(options.bytes);
  const auto same = std::ranges::unique(options.bytes);
  options.bytes.erase(same.begin(), same.end());
  return options;
}

std::string collectives_bench_help_text() {
  return R"(launcher bench collectives --config FILE [options]: times what the workers
of FILE's topology would tell each other, on its device: sums, gathers and
exchanges within a tensor group, exchanges between the ranks that experts are
dealt to, messages from stage to stage. Starts no engine and reads no weights;
a thread stands for each rank, and one group is timed at a time.

The bus bandwidth is what a ring would have to carry of the bytes: of a sum 2
(n - 1) / n of them, of what is only moved (n - 1) / n, of a message all. It is
set beside what one large message between two ranks reaches on GPUs, and a copy
of memory on a CPU. On GPUs the table has NCCL's own sums of the same run.

  --config FILE     the topology, the device and the model's dtype
  --set KEY=VALUE   a key of the YAML by its dotted name; may be given often
  --bytes LIST      sizes (8,64,512,4096 and on to 67108864)
  --seconds S       about how long each is timed for (0.05)
  --json FILE       all figures, for programs
  -h, --help        print this text
)";
}

}  // namespace troupe
