#pragma once

#include <optional>
#include <vector>

#include "models/ops/cuda/cuda_context.hpp"
#include "models/ops/cuda/cuda_dense_ops.hpp"
#include "models/ops/cuda/gemm/quantize_rows.hpp"
#include "models/ops/moe_ops.hpp"

namespace troupe {

class CudaGroupedLinear;
struct GroupedGemm;

/// Experts: routing is in cuda_routing.cu, sorting in cuda_sorting.cu, products in cuda_experts.cu,
/// combining in cuda_combine.cu.
class CudaMoeOps final : public MoeOps, private CudaComponent {
 public:
  CudaMoeOps(CudaContext& context, CudaDenseOps& dense) : CudaComponent(context), dense_(dense) {}

 private:
  void do_route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                const Tensor& ids, const Tensor& weights) override;
  void do_permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) override;
  void do_count_rows(const ExpertBatch& batch, const Tensor& counts) override;
  void do_permute_received(const Tensor& ids, const Tensor& received_counts,
                           std::int64_t first_expert, const ExpertBatch& batch,
                           const Tensor& counts) override;
  void do_route_and_permute(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                            const ExpertChoices& choices, const ExpertBatch& batch,
                            const Tensor& counts) override;
  void do_route_tokens(const Linear& router, const Tensor& x, const Tensor& logits,
                       const Tensor& bias, const RouterOptions& options,
                       const ExpertChoices& choices, const ExpertBatch& batch,
                       const Tensor& counts) override;
  bool multiplies_codes() const override;
  bool do_takes_codes(const GroupedLinear& gate_up) const override;
  CodedTokens do_codes_of(const Tensor& x) override;
  void do_heads_linear(const GroupedLinear& weights, const Columns& x, const Tensor& out) override;
  void do_grouped_linear(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                         std::int64_t top_k, bool gather, bool scatter, const Tensor& out) override;
  void do_grouped_gate_up(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                          std::int64_t top_k, const Tensor& scratch, const Tensor& out) override;
  bool do_grouped_activate(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                           std::int64_t top_k, const Tensor& bias, Activation activation,
                           const Tensor& out) override;
  // In cuda_expert_bias.cu.
  void do_add_expert_bias(const Tensor& x, const ExpertBatch& batch, const Tensor& bias) override;
  void do_add_chosen_bias(const Tensor& ids, const Tensor& weights, const Tensor& bias,
                          const Tensor& out) override;
  void do_combine(const Tensor& x, const Tensor& weights, const Tensor& out) override;
  void do_combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                        const Tensor& out) override;
  void do_expert_mlp(const GroupedLinear& gate_up, const GroupedLinear& down, const Tensor& x,
                     const ExpertChoices& choices, const ExpertBatch& batch,
                     const ExpertScratch& scratch, const Tensor& out,
                     const SharedMlp& shared) override;
  bool do_adds_shared_mlp(const SharedMlp& shared, const GroupedLinear& down, std::int64_t tokens,
                          std::int64_t top_k) const override;

  void run(const GroupedGemm& gemm, DType x_dtype, std::int64_t rows);
  /// Of experts in codes: makes codes of x, unless it is codes or has some, and sets the scales; of
  /// sorted rows only for those that there are. False if there is no memory for them.
  bool quantize(const CudaGroupedLinear& grouped, const Tensor& x, const ExpertBatch& batch,
                GroupedGemm& gemm);
  /// The codes of tokens, made by an operation before or now; none without memory for them.
  std::optional<CodedRows> token_codes(const Tensor& tokens);
  /// Memory for codes of so many rows until the next call; none after an error.
  std::optional<CodedRows> room_for_codes(std::int64_t rows, std::int64_t k);

  CudaDenseOps& dense_;
  DeviceTensor codes_, code_scales_;    ///< of rows that experts in codes multiply
  std::vector<DeviceTensor> outgrown_;  ///< captured graphs may use them
  Tensor routed_;  ///< the tokens that were routed last, with codes that another operation had made
  std::optional<CodedRows> routed_codes_;
  std::uint64_t routed_at_ = 0;  ///< CudaContext::uses()
};

}  // namespace troupe
