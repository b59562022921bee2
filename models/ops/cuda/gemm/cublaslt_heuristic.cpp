#include "models/ops/cuda/gemm/cublaslt_heuristic.hpp"

namespace troupe {
namespace {

// Rows of a slice of another tensor may begin anywhere; tensor cores need no more than this.
constexpr std::uint32_t alignment = 16;

}  // namespace

std::vector<cublasLtMatmulAlgo_t> advised_algorithms(cublasLtHandle_t handle, const GemmKind& kind,
                                                     std::size_t workspace_bytes, int most,
                                                     bool whole_k) {
  GemmLayout layout(kind);
  cublasLtMatmulPreferenceOpaque_t preference{};
  cublasLtMatmulPreferenceInit(&preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value);
  };
  constexpr std::uint32_t in_fp32 =
      CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      whole_k ? std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE} : in_fp32);
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(attribute, alignment);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> advice(static_cast<std::size_t>(most));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, &layout.operation, &layout.weight, &layout.x, &layout.out, &layout.out, &preference,
      most, advice.data(), &found);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  if (status != CUBLAS_STATUS_SUCCESS) return algorithms;
  for (int i = 0; i < found; ++i) {
    const auto& one = advice[static_cast<std::size_t>(i)];
    if (one.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(one.algo);
  }
  return algorithms;
}

const cublasLtMatmulAlgo_t* CublasltHeuristic::choose(const GemmKind& kind, const void* /*weight*/,
                                                      cudaStream_t /*stream*/) {
  if (const auto found = chosen_.find(kind); found != chosen_.end()) return &found->second;
  const auto advised = advised_algorithms(handle_, kind, workspace_bytes_, 1);
  if (advised.empty()) return nullptr;
  return &chosen_.emplace(kind, advised.front()).first->second;
}

}  // namespace troupe
