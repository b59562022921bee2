#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/ops/cuda/gemm/dense_gemm.hpp"

namespace troupe {

/// Finds which of cuBLASLt's algorithms give the bits of launch_invariant_gemm, and if one is
/// faster. For each kind of GEMM, on first use, it compares all outputs for random rows and the
/// weight, at the fewest and the most rows of the kind's bucket; or it reads the result of an
/// earlier process on this kind of GPU with this version of cuBLASLt from a file. Like
/// GemmAutotuner it uses a stream and memory of its own.
class InvariantAutotuner {
 public:
  /// `file`: see GemmAutotuner.
  InvariantAutotuner(cublasLtHandle_t handle, std::size_t workspace_bytes, std::string file);
  ~InvariantAutotuner();
  InvariantAutotuner(const InvariantAutotuner&) = delete;
  InvariantAutotuner& operator=(const InvariantAutotuner&) = delete;

  /// Returns an algorithm that is faster and gives launch_invariant_gemm's bits, for kind.segments
  /// GEMMs whose sums add_segments adds. Null: launch_invariant_gemm is faster. Both are bf16, a
  /// segment a multiple of 8; `weight` is one of their weights, only read.
  const cublasLtMatmulAlgo_t* choose(const GemmKind& kind, const void* weight, cudaStream_t stream);

 private:
  class Trial;
  using Choice = std::optional<cublasLtMatmulAlgo_t>;

  Choice fastest(const GemmKind& kind, const void* weight);
  void read_file();
  void note(const GemmKind& kind, const Choice& choice) const;

  cublasLtHandle_t handle_;
  std::size_t workspace_bytes_;
  std::string file_;
  cudaStream_t stream_ = nullptr;
  std::map<GemmKind, Choice> chosen_;
};

/// The cuBLASLt description of one of the GEMMs of a kind with segments: their sums are f32.
GemmKind segments_of(const GemmKind& kind);

}  // namespace troupe
