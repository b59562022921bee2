#include "launcher/bench/common/part_bench.hpp"

#include <cstdio>
#include <fstream>
#include <utility>

namespace troupe {

ExitCode tell(const Error& error, ExitCode code) {
  std::fprintf(stderr, "launcher: %s\n", error.message.c_str());
  return code;
}

Result<JobPlan> plan_part_bench(const PartBenchOptions& options) {
  TROUPE_TRY(Config config, options.config.load(Purpose::check));
  return plan_job(std::move(config));
}

ExitCode show_figures(const std::string& table, const nlohmann::ordered_json& figures,
                      const PartBenchOptions& options) {
  std::fputs(table.c_str(), stdout);
  if (options.json_path.empty()) return ExitCode::all_answered;
  std::ofstream file(options.json_path, std::ios::trunc);
  // Paths may hold invalid UTF-8.
  file << figures.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  file.close();
  if (file) return ExitCode::all_answered;
  return tell(fail(ErrorCode::io, "cannot write --json {}", options.json_path), ExitCode::failed);
}

}  // namespace troupe
