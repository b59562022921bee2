#pragma once

#include <map>
#include <vector>

#include "models/ops/cuda/gemm/cublaslt_gemm.hpp"

namespace troupe {

/// Returns up to `most` algorithms that cuBLASLt's heuristic suggests for a kind of GEMM, fastest
/// first by its estimate. Partial sums over a split k are added in fp32; with `whole_k` k is not
/// split.
std::vector<cublasLtMatmulAlgo_t> advised_algorithms(cublasLtHandle_t handle, const GemmKind& kind,
                                                     std::size_t workspace_bytes, int most,
                                                     bool whole_k = false);

/// Takes the heuristic's first suggestion, queried once per kind.
class CublasltHeuristic final : public GemmAlgorithms {
 public:
  CublasltHeuristic(cublasLtHandle_t handle, std::size_t workspace_bytes)
      : handle_(handle), workspace_bytes_(workspace_bytes) {}

  const cublasLtMatmulAlgo_t* choose(const GemmKind& kind, const void* weight,
                                     cudaStream_t stream) override;

 private:
  cublasLtHandle_t handle_;
  std::size_t workspace_bytes_;
  std::map<GemmKind, cublasLtMatmulAlgo_t> chosen_;
};

}  // namespace troupe
