#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/ops/cuda/gemm/dense_gemm.hpp"

namespace troupe {

/// Which of cuBLASLt's algorithms give the bits of launch_invariant_gemm, and whether one is
/// faster: found out, for each kind of product that is met for the first time, by comparing all of
/// what they make of random rows with the weight, for the fewest and the most rows of the kind's
/// bucket; or by an earlier process on this kind of GPU with this version of cuBLASLt, which wrote
/// it to a file. As GemmAutotuner it works on a stream and memory of its own.
class InvariantAutotuner {
 public:
  /// `file` as GemmAutotuner's.
  InvariantAutotuner(cublasLtHandle_t handle, std::size_t workspace_bytes, std::string file);
  ~InvariantAutotuner();
  InvariantAutotuner(const InvariantAutotuner&) = delete;
  InvariantAutotuner& operator=(const InvariantAutotuner&) = delete;

  /// An algorithm that gives launch_invariant_gemm's bits, of kind.segments products whose sums
  /// add_segments adds, and is faster. Null: launch_invariant_gemm is. Both bf16, a segment of a
  /// multiple of 8; `weight` is one that the products will have, which is only read.
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

/// What cuBLASLt is told of one of the products of a kind with segments: their sums are f32.
GemmKind segments_of(const GemmKind& kind);

}  // namespace troupe
