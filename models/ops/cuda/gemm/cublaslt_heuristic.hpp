#pragma once

#include <map>
#include <vector>

#include "models/ops/cuda/gemm/dense_gemm.hpp"

namespace troupe {

/// Up to `most` algorithms that cuBLASLt advises for a kind of product, the one it deems fastest
/// first. Partial sums of a k that is split are added in fp32; with `whole_k` it is not split.
std::vector<cublasLtMatmulAlgo_t> advised_algorithms(cublasLtHandle_t handle, const GemmKind& kind,
                                                     std::size_t workspace_bytes, int most,
                                                     bool whole_k = false);

/// Takes cuBLASLt's first advice, which is asked for once a kind.
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
