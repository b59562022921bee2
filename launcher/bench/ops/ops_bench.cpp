#include "launcher/bench/ops/ops_bench.hpp"

#include <cstdio>

#include "launcher/bench/common/part_bench.hpp"
#include "launcher/bench/ops/model_ops.hpp"
#include "launcher/bench/ops/op_figures.hpp"
#include "models/ops/device/device.hpp"

namespace troupe {
namespace {

Result<OpsFigures> measure(const OpsBenchOptions& options, const JobPlan& plan) {
  const EngineSpec& engine = plan.engine;
  const DType dtype = engine.dtype;
  TROUPE_TRY(const auto ops, make_ops({.kind = engine.device,
                                       .dtype = dtype,
                                       .threads = engine.threads_per_worker,
                                       .encoding = engine.encoding,
                                       .deterministic = engine.deterministic}));
  OpsFigures figures{.model = engine.model_path,
                     .device = engine.device == DeviceKind::cuda
                                   ? engine.deterministic ? "one GPU, deterministic" : "one GPU"
                                   : fmt::format("threads of a CPU: {}", engine.threads_per_worker),
                     .dtype = std::string(to_string(dtype)),
                     .tensor_parallel_size = engine.tensor_parallel_size,
                     .context = options.context,
                     .prefix = options.prefix,
                     .max_decode_rows = engine.max_num_seqs,
                     .rows = options.rows};
  ModelOps bench(*ops, plan.model,
                 {.tensor_ranks = engine.tensor_parallel_size,
                  .block_size = engine.block_size,
                  .dtype = dtype,
                  .kv_dtype = engine.kv_dtype(),
                  .kv_residuals = engine.kv_residuals,
                  .encoding = engine.encoding,
                  .quantize_head = engine.quantize_head,
                  .on_gpu = engine.device == DeviceKind::cuda,
                  .deterministic = engine.deterministic,
                  .threads = engine.threads_per_worker,
                  .seconds = options.seconds});
  TROUPE_CHECK(options.attention.empty() ? bench.measure(figures)
                                         : bench.measure(figures, options.attention));
  return figures;
}

}  // namespace

ExitCode run_ops_bench(const OpsBenchOptions& options) {
  const auto plan = plan_part_bench(options);
  if (!plan.ok()) return tell(plan.error(), ExitCode::refused);
  const auto figures = measure(options, *plan);
  if (!figures.ok()) return tell(figures.error(), ExitCode::failed);
  return show_figures(to_table(*figures), to_json(*figures), options);
}

}  // namespace troupe
