#include "launcher/cli/part_bench_options.hpp"

#include <CLI/CLI.hpp>

namespace troupe {

void PartBenchArguments::declare(CLI::App& app) {
  config_.declare(app);
  app.add_option("--json", json_path_, "all figures, for programs")->type_name("FILE")->expected(1);
}

Result<PartBenchOptions> PartBenchArguments::judge() const {
  PartBenchOptions options{.config = {}, .json_path = json_path_};
  TROUPE_TRY(options.config, config_.judge());
  return options;
}

}  // namespace troupe
