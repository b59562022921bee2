#include "launcher/bench/ops/ops_bench.hpp"

#include <cstdio>
#include <fstream>
#include <variant>

#include "launcher/bench/ops/model_ops.hpp"
#include "launcher/bench/ops/op_figures.hpp"
#include "launcher/cli/ops_bench_options.hpp"
#include "launcher/job/job_plan.hpp"
#include "models/ops/device/device.hpp"

namespace troupe {
namespace {

ExitCode tell(const Error& error, ExitCode code) {
  std::fprintf(stderr, "launcher: %s\n", error.message.c_str());
  return code;
}

Result<OpsFigures> measure(const OpsBenchOptions& options, const JobPlan& plan) {
  const EngineSpec& engine = plan.engine;
  const DType dtype = engine.bf16 ? DType::bf16 : DType::f32;
  TROUPE_TRY(
      const auto ops,
      make_ops({.kind = engine.device, .dtype = dtype, .threads = engine.threads_per_worker}));
  OpsFigures figures{.model = engine.model_path,
                     .device = engine.device == DeviceKind::cuda
                                   ? "one GPU"
                                   : fmt::format("threads of a CPU: {}", engine.threads_per_worker),
                     .dtype = std::string(to_string(dtype)),
                     .tensor_parallel_size = engine.tensor_parallel_size,
                     .context = options.context,
                     .most_decode_rows = engine.max_num_seqs,
                     .rows = options.rows};
  ModelOps bench(*ops, plan.model,
                 {.tensor_ranks = engine.tensor_parallel_size,
                  .block_size = engine.block_size,
                  .dtype = dtype,
                  .on_gpu = engine.device == DeviceKind::cuda,
                  .threads = engine.threads_per_worker,
                  .seconds = options.seconds});
  TROUPE_CHECK(bench.measure(figures));
  return figures;
}

Result<void> write_json(const OpsFigures& figures, const std::string& path) {
  if (path.empty()) return {};
  std::ofstream file(path, std::ios::trunc);
  // Paths may hold bytes that are no text.
  file << to_json(figures).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
       << "\n";
  file.close();
  if (file) return {};
  return fail(ErrorCode::io, "cannot write --json {}", path);
}

}  // namespace

ExitCode run_ops_bench(std::span<const std::string> arguments) {
  const auto parsed = parse_ops_bench_options(arguments);
  if (const auto* early = std::get_if<EarlyExit>(&parsed)) {
    std::fputs(early->text.c_str(), early->to_stderr ? stderr : stdout);
    return early->code;
  }
  const auto& options = std::get<OpsBenchOptions>(parsed);
  auto config = load_config(options.config_path, options.overrides, Purpose::check);
  if (!config.ok()) return tell(config.error(), ExitCode::refused);
  const auto plan = plan_job(*std::move(config));
  if (!plan.ok()) return tell(plan.error(), ExitCode::refused);
  const auto figures = measure(options, *plan);
  if (!figures.ok()) return tell(figures.error(), ExitCode::failed);
  std::fputs(to_table(*figures).c_str(), stdout);
  const auto written = write_json(*figures, options.json_path);
  if (!written.ok()) return tell(written.error(), ExitCode::failed);
  return ExitCode::all_answered;
}

}  // namespace troupe
