#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "models/ops/cuda/gemm/cublaslt_gemm.hpp"
#include "models/ops/cuda/gemm/tuning_file.hpp"
#include "models/ops/cuda/gemm/tuning_run.hpp"

namespace troupe {

/// Finds which of cuBLASLt's algorithms give the bits of launch_invariant_gemm, and if one is
/// faster. For each kind of GEMM, on first use, it compares all outputs for random rows and the
/// weight, at the fewest and the most rows of the kind's bucket; or it reads the result of an
/// earlier process on this kind of GPU with this version of cuBLASLt from a file. Like
/// GemmAutotuner it uses a stream and memory of its own.
class InvariantAutotuner {
 public:
  /// `file`: see GemmAutotuner.
  InvariantAutotuner(cublasLtHandle_t handle, std::size_t workspace_bytes, TuningFile file);

  /// Returns an algorithm that is faster and gives launch_invariant_gemm's bits, for kind.segments
  /// GEMMs whose sums add_segments adds. Null: launch_invariant_gemm is faster. Both are bf16, a
  /// segment a multiple of 8; `weight` is one of their weights, only read.
  const cublasLtMatmulAlgo_t* choose(const GemmKind& kind, const void* weight, cudaStream_t stream);

 private:
  class Trial;
  using Choice = std::optional<cublasLtMatmulAlgo_t>;

  Choice fastest(const GemmKind& kind, const void* weight);

  cublasLtHandle_t handle_;
  std::size_t workspace_bytes_;
  TuningFile file_;
  TuningStream stream_;
  std::map<GemmKind, Choice> chosen_;
};

/// The cuBLASLt description of one of the GEMMs of a kind with segments: their sums are f32.
GemmKind segments_of(const GemmKind& kind);

}  // namespace troupe
