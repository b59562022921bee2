#include "launcher/cli/ops_bench_options.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "launcher/cli/number_checks.hpp"

namespace troupe {

std::string_view OpsBenchArguments::summary() const {
  return "One worker's operations beside what its device could do at most.";
}

std::string OpsBenchArguments::details() const {
  return R"(Times the operations of one worker of the model on its device, on random
numbers, each beside what the device could do at most: its bytes at the speed
of a large copy, or its multiply-adds at that of a large product, whichever
takes longer. Starts no engine and reads no weights.

For as many rows as sequences fit in a step (engine.max_num_seqs) the table
ends with a decode step of them: the sum of these least times (the roofline),
and of the times measured. Rows beyond are prefill.)";
}

void OpsBenchArguments::declare(CLI::App& app) {
  common_.declare(app);
  app.add_option("--rows", options_.rows, "tokens of a pass")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(integer_between(1, 1 << 20))
      ->default_str("1,8,64,256,4096");
  app.add_option("--context", options_.context, "tokens of each sequence")
      ->type_name("N")
      ->check(integer_between(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--seconds", options_.seconds, "about how long each operation is timed for")
      ->type_name("S")
      ->check(number_between(0.001, 60))
      ->capture_default_str();
}

Result<OpsBenchOptions> OpsBenchArguments::judge() const {
  OpsBenchOptions options = options_;
  TROUPE_TRY(static_cast<PartBenchOptions&>(options), common_.judge());
  std::ranges::sort(options.rows);
  const auto same = std::ranges::unique(options.rows);
  options.rows.erase(same.begin(), same.end());
  return options;
}

}  // namespace troupe
