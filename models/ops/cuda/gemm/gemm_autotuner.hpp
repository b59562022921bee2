#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "models/ops/cuda/gemm/cublaslt_gemm.hpp"
#include "models/ops/cuda/gemm/tuning_file.hpp"
#include "models/ops/cuda/gemm/tuning_run.hpp"

namespace troupe {

/// The fastest algorithms, measured on this kind of GPU with this version of cuBLASLt, by this
/// process or by an earlier one that wrote them to a file.
///
/// Tunes on a stream and memory of its own, even while another stream is being captured. Kinds
/// whose operands are too large for that get the heuristic's first suggestion.
class GemmAutotuner final : public GemmAlgorithms {
 public:
  /// Reads `file` now, and appends a line for each kind measured.
  GemmAutotuner(cublasLtHandle_t handle, std::size_t workspace_bytes, TuningFile file);

  const cublasLtMatmulAlgo_t* choose(const GemmKind& kind, const void* weight,
                                     cudaStream_t stream) override;

 private:
  /// Returns nothing if they cannot be measured.
  std::optional<std::size_t> fastest(const GemmKind& kind, const void* weight,
                                     const std::vector<cublasLtMatmulAlgo_t>& candidates);

  cublasLtHandle_t handle_;
  std::size_t workspace_bytes_;
  TuningFile file_;
  TuningStream stream_;
  std::map<GemmKind, cublasLtMatmulAlgo_t> chosen_;
};

}  // namespace troupe
