#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "models/kv_policy/kv_policy.hpp"
#include "models/ops/kv_residual.hpp"
#include "models/ops/linear.hpp"
#include "parallel/device/dtype.hpp"

namespace troupe {

/// Segments of a row-parallel matrix with exact sums on GPUs, and so the largest tensor size there.
inline constexpr int max_exact_segments = 4;

/// Dtype of the index keys of sparse attention, by which rows choose what they attend to, beside a
/// KV cache of `kv_dtype`.
constexpr DType index_dtype_of(DType kv_dtype, DType compute) {
  return is_code(kv_dtype) ? compute : kv_dtype;
}

/// The maximum sizes of a model's passes, and the precision in which it computes. Fixed when it is
/// loaded: all buffers are allocated then.
struct ModelLimits {
  std::int64_t max_batch_tokens = 2048;  ///< rows of one pass
  std::int64_t max_head_rows = 256;      ///< rows of one pass that need logits
  std::int64_t max_positions = 0;        ///< tokens of one sequence; 0: the model's own limit
  std::int32_t block_size = 16;          ///< tokens of a KV block
  int threads = 1;                       ///< that compute tables while the model is loaded
  WeightEncoding encoding = WeightEncoding::plain;  ///< of the layers' matrices
  std::optional<bool> quantize_head = {};           ///< the head is in 8 bits (encoding_for)
  DType compute = DType::f32;     ///< f32, or bf16 (then weights are rounded to bf16)
  DType kv_dtype = DType::f32;    ///< of the KV cache: f32, bf16, i8, f8_e4m3 or i4x2
  KvResiduals kv_residuals = {};  ///< of a KV cache of i4x2
  /// The tokens that the KV cache keeps. Models do not check if they can do with another than all.
  KvPolicy kv_policy = {};
  /// Attention may look for prefixes that sequences of a pass share, to read them once.
  bool cascade_attention = true;
  /// With deterministic Ops, gives a sum the same bits at every tensor size even for bf16
  /// activations: partial sums are f32, of max_exact_segments at most, and so are the expert
  /// outputs of a token, which one rank adds up.
  bool exact_sums = false;
  /// Activations beyond it, where products round them to 8 bits, are told (Model::take_peaks);
  /// infinity: none are watched.
  float max_activation = std::numeric_limits<float>::infinity();

  DType index_dtype() const { return index_dtype_of(kv_dtype, compute); }
  /// Dtype of sums over columns that ranks share, and of what blocks add to the residual stream.
  DType sum_dtype(DType activation) const { return exact_sums ? DType::f32 : activation; }
};

}  // namespace troupe
