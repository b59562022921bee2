#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <cuda_runtime.h>

#include "models/ops/cuda/common/output_memory.hpp"
#include "models/ops/cuda/gemm/decode_gemm.hpp"
#include "models/ops/cuda/gemm/dense_gemm.hpp"
#include "models/ops/cuda/gemm/quantize_rows.hpp"
#include "models/ops/ops.hpp"

namespace troupe {

/// A matrix [n, k] in 8-bit codes: element [r, i] is codes[r, i] * scales[r] (quantize_rows.hpp).
struct W8a8Matrix {
  DeviceTensor codes;              ///< [n, k] u8
  DeviceTensor scales;             ///< [n] f32
  CodeKind kind = CodeKind::e4m3;  ///< e4m3 or int8
};

/// GEMMs of matrices in 8-bit codes (W8A8): each row of x is quantised with a scale of its own
/// (dynamic, by token), the tensor cores multiply codes, and both scales are factors of the sum.
/// Few rows (decode_gemm_suits) by launch_decode_gemm, which makes the codes of one row itself
/// where it can, others by launch_scaled_gemm or, of E4M3 codes, by cuBLASLt, whichever is expected
/// to be faster. One thread at a time.
class W8a8Gemm {
 public:
  /// Device memory that GEMMs on one stream may use, for rows of x: more are multiplied in turns.
  struct Memory {
    DeviceTensor codes;   ///< u8
    DeviceTensor scales;  ///< f32
  };
  /// True if matrices of this shape can be multiplied, on this device.
  static bool fits(std::int64_t n, std::int64_t k);

  /// All codes are of `kind`. `gemms` is not deterministic. It and `outputs` outlive the object.
  W8a8Gemm(CodeKind kind, DenseGemm& gemms, const OutputMemory& outputs, Memory memory)
      : kind_(kind), gemms_(gemms), outputs_(outputs), memory_(std::move(memory)) {}

  /// Enqueues out = x . weight^T: x [rows, k] bf16, out [rows, n] f32 or bf16. Errors: those of
  /// cuda_done.
  Result<void> multiply(const W8a8Matrix& weight, const Tensor& x, const Tensor& out,
                        cudaStream_t stream);
  /// Like multiply for a weight whose first half of n is a gate: out [rows, n / 2] = silu(gate) *
  /// up; false, and nothing is enqueued, unless decode_gemm_suits.
  Result<bool> multiply_gated(const W8a8Matrix& weight, const Tensor& x, const Tensor& out,
                              cudaStream_t stream);

  /// Where a kernel that makes x [rows, k] may put its codes itself; none if there are too many.
  /// Once it is enqueued, x is coded.
  std::optional<CodedRows> room_for(std::int64_t rows, std::int64_t k) const;
  /// CodedRows::peak of codes from now on; null: none.
  void set_peak(float* peak) { peak_ = peak; }
  float* peak() const { return peak_; }
  /// The codes are those of `x`, until others are made or x may have changed.
  void set_coded(const Tensor& x) { coded_ = x; }
  bool is_coded(const Tensor& x) const {
    return coded_.data() == x.data() && coded_.shape() == x.shape() && !x.empty();
  }

 private:
  CodedRows room() const {
    return {memory_.codes->as<std::uint8_t>(), memory_.scales->as<float>(), peak_, kind_};
  }
  /// Enqueues the codes and scales of the rows of x, unless they are there.
  Result<void> quantize(const Tensor& x, cudaStream_t stream);
  /// Enqueues the product of rows whose codes find room in memory_; makes the codes if they are not
  /// there.
  Result<void> multiply_rows(const W8a8Matrix& weight, const Tensor& x, const Tensor& out,
                             bool gated, cudaStream_t stream);

  /// Enqueues the product of any number of rows whose codes are in memory_, as `gemm` describes it
  /// but for its rows: for sums in f32, which models do not ask of signed bytes.
  Result<void> multiply_in_turns(DecodeGemm gemm, const Tensor& out, cudaStream_t stream);

  /// The rows to compute of `out` [rows, n], whose rows of x have k codes: with those behind it as
  /// many as cuBLASLt is fast with, if there is memory for them.
  std::int64_t padded_rows(const Tensor& out, std::int64_t k) const;

  CodeKind kind_;
  DenseGemm& gemms_;
  const OutputMemory& outputs_;
  Memory memory_;
  float* peak_ = nullptr;
  Tensor coded_;  ///< whose codes are in memory_; empty: nobody's
};

}  // namespace troupe
