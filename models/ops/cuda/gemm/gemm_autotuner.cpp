#include "models/ops/cuda/gemm/gemm_autotuner.hpp"

#include <utility>

#include "models/ops/cuda/gemm/cublaslt_heuristic.hpp"

namespace troupe {
namespace {

constexpr int max_candidates = 8;
constexpr std::size_t max_operand_bytes = std::size_t{3} << 30;
/// Others must be this much faster than the first suggestion: a GEMM's time varies by a few percent
/// from one second to the next.
constexpr float clearly_faster = 0.95F;

}  // namespace

GemmAutotuner::GemmAutotuner(cublasLtHandle_t handle, std::size_t workspace_bytes, TuningFile file)
    : handle_(handle), workspace_bytes_(workspace_bytes), file_(std::move(file)) {
  for (const auto& [kind, algorithm] : file_.read()) {
    if (!algorithm || !is_usable(handle_, kind, *algorithm, workspace_bytes_)) continue;
    chosen_.insert_or_assign(kind, *algorithm);
  }
}

const cublasLtMatmulAlgo_t* GemmAutotuner::choose(const GemmKind& kind, const void* weight,
                                                  cudaStream_t stream) {
  if (const auto found = chosen_.find(kind); found != chosen_.end()) return &found->second;
  const auto candidates = advised_algorithms(handle_, kind, workspace_bytes_, max_candidates);
  if (candidates.empty()) return nullptr;
  std::size_t best = 0;
  if (candidates.size() > 1 && stream_.get() != nullptr) {
    let_work_end(stream);
    if (const auto measured = fastest(kind, weight, candidates)) {
      best = *measured;
      file_.append({kind, candidates[best]});
    }
    cudaStreamSynchronize(stream_.get());  // frees its memory
  }
  return &chosen_.emplace(kind, candidates[best]).first->second;
}

std::optional<std::size_t> GemmAutotuner::fastest(
    const GemmKind& kind, const void* weight, const std::vector<cublasLtMatmulAlgo_t>& candidates) {
  const auto rows = static_cast<std::size_t>(kind.rows);
  const std::size_t x_bytes = rows * static_cast<std::size_t>(kind.k) * size_of(kind.in);
  const std::size_t out_bytes = rows * static_cast<std::size_t>(kind.n) * size_of(kind.out);
  if (x_bytes + out_bytes > max_operand_bytes) return std::nullopt;
  cudaStream_t const stream = stream_.get();
  const std::size_t scales_bytes = (rows + static_cast<std::size_t>(kind.n)) * sizeof(float);
  const StreamMemory x(x_bytes, stream), out(out_bytes, stream), flush(flush_bytes, stream),
      workspace(workspace_bytes_, stream), scales(scales_bytes, stream);
  if (x.get() == nullptr || out.get() == nullptr || flush.get() == nullptr ||
      workspace.get() == nullptr || scales.get() == nullptr) {
    return std::nullopt;
  }
  fill_with_noise(x.get(), x_bytes, stream);
  cudaMemsetAsync(flush.get(), 0, flush_bytes, stream);
  cudaMemsetAsync(scales.get(), 0, scales_bytes, stream);
  const auto* const scale = static_cast<const float*>(scales.get());
  const GemmMemory memory{weight,           x.get(), out.get(),     workspace.get(),
                          workspace_bytes_, scale,   scale + kind.n};
  std::size_t best = 0;
  float first_ms = 0.0F, best_ms = 0.0F;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto run = [&] {
      return run_cublaslt_gemm(handle_, kind, candidates[i], memory, stream) ==
             CUBLAS_STATUS_SUCCESS;
    };
    const float ms = fastest_ms(run, flush, stream);
    if (i == 0) first_ms = best_ms = ms;
    if (ms < best_ms && ms < clearly_faster * first_ms) {
      best = i;
      best_ms = ms;
    }
  }
  return best;
}

}  // namespace troupe
