#pragma once

#include <cstdint>

#include "parallel/device/dtype.hpp"

namespace troupe {

/// Segments of a row-parallel matrix where sums are exact on GPUs: the largest tensor size.
inline constexpr int max_exact_segments = 4;

/// How large the passes of a model may become and in which precision it computes. Fixed when it is
/// loaded: all buffers are allocated then.
struct ModelLimits {
  std::int64_t max_batch_tokens = 2048;  ///< rows of one pass
  std::int64_t max_head_rows = 256;      ///< rows of one pass that need logits
  std::int64_t max_positions = 0;        ///< tokens of one sequence; 0: the model's own limit
  std::int32_t block_size = 16;          ///< tokens of a KV block
  DType compute = DType::f32;            ///< f32, or bf16 (then weights are rounded to bf16)
  DType kv_dtype = DType::f32;           ///< of the KV cache: f32 or bf16
  /// Also where activations are bf16, and Ops deterministic, a sum has the same bits at every
  /// tensor size: partial sums are f32, of max_exact_segments at most, and so is what a token's
  /// experts make of it, which one rank adds up.
  bool exact_sums = false;

  /// Of sums over columns that ranks share, and of what blocks add to the residual stream.
  DType sum_dtype(DType activation) const { return exact_sums ? DType::f32 : activation; }
};

}  // namespace troupe
