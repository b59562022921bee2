#pragma once

#include <cstdint>
#include <optional>

#include "models/ops/cuda/cuda_context.hpp"
#include "models/ops/cuda/cuda_linear.hpp"
#include "models/ops/dense_ops.hpp"

namespace troupe {

/// GEMMs are those of gemm/; operations on rows are in elementwise.cu.
class CudaDenseOps final : public DenseOps, private CudaComponent {
 public:
  static Result<std::unique_ptr<CudaDenseOps>> create(CudaContext& context);

  /// The codes of `rows` [rows, k], if they have been made and nothing was enqueued since; until
  /// others are made.
  std::optional<CodedRows> codes_of(const Tensor& rows) const;

  /// CodedRows::peak of codes that are made now; null: none.
  float* peak() const { return gemms_.w8a8 != nullptr ? gemms_.w8a8->peak() : nullptr; }

  void watch_rows(const Tensor& peak) override {
    if (gemms_.w8a8 != nullptr) gemms_.w8a8->set_peak(peak.empty() ? nullptr : peak.as<float>());
  }

 private:
  explicit CudaDenseOps(CudaContext& context) : CudaComponent(context) {}

  void do_embed(const Tensor& table, const Tensor& ids, std::int64_t vocab_begin,
                const Tensor& out) override;
  void do_rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out,
                   const Linear* next) override;
  void do_add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, float eps,
                       const Tensor& out, const Linear* next) override;
  void do_add(const Tensor& residual, const Tensor& x) override;
  void do_add_bias(const Tensor& x, const Tensor& bias) override;
  void do_linear(const Linear& weight, const Tensor& x, const Tensor& out) override;
  void do_linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch,
                         const Tensor& out, const Linear* next) override;
  void do_silu_mul(const Tensor& gate_up, const Tensor& out) override;
  // In layer_variants.cu.
  void do_activate(const Tensor& x, Activation activation, const Tensor& out) override;
  void do_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                     const Tensor& out) override;
  void do_scale(const Tensor& x, float factor, float soft_cap) override;
  void do_gate_rows(const Tensor& x, const Tensor& input, const Tensor& weight) override;
  void do_tree_sum(const Tensor& x, const Tensor& out) override;
  void do_gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) override;
  void do_concat_columns(const Tensor& parts, const Tensor& out) override;

  /// Where an operation may put the codes of rows [rows, k] that it makes, if matrices in codes may
  /// be multiplied with them.
  std::optional<CodedRows> room_for_codes(const Tensor& rows) const;
  /// True if products with `next`, which may be null, read nothing of rows but their codes.
  static bool reads_only_codes(const Linear* next);
  /// Enqueues silu_mul with codes of `out`, or with `only_codes` these alone; false, and nothing is
  /// enqueued, if there is no room for them.
  bool silu_mul_coded(const Tensor& gate_up, const Tensor& out, bool only_codes);
  /// The operation enqueued last has made the codes of `rows`, or with `only_codes` these alone.
  void set_coded(const Tensor& rows, bool only_codes);
  /// Before a GEMM: forgets codes if anything was enqueued since they were made.
  void check_codes();

  /// Checks before a GEMM of x that it is that of rows of which codes alone were made, if the last
  /// operation made any.
  bool has_numbers_or_codes(const Tensor& x);

  CudaGemms gemms_;
  const void* only_coded_ = nullptr;  ///< rows of which only codes were made; their memory is unset
  std::uint64_t coded_at_ = 0;        ///< CudaContext::uses() when codes were made
};

}  // namespace troupe
