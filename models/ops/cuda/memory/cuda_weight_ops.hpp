#pragma once

#include "models/ops/coded_panels.hpp"
#include "models/ops/cuda/coded_cuda_linear.hpp"
#include "models/ops/cuda/cuda_context.hpp"
#include "models/ops/cuda/gemm/w8a8_gemm.hpp"
#include "models/ops/cuda/memory/weight_upload.hpp"
#include "models/ops/weight_ops.hpp"

namespace troupe {

/// Weights in a GPU's memory, in the Ops' dtype or as codes.
class CudaWeightOps final : public WeightOps, private CudaComponent {
 public:
  explicit CudaWeightOps(CudaContext& context) : CudaComponent(context) {}

  Result<std::unique_ptr<Linear>> prepare(const Tensor& weight, int segments,
                                          WeightEncoding encoding) override;
  Result<std::unique_ptr<GroupedLinear>> prepare_grouped(std::span<const Tensor> weights,
                                                         int segments,
                                                         WeightEncoding encoding) override;
  Result<DeviceTensor> prepare_table(const Tensor& weight) override;
  Result<std::unique_ptr<Linear>> load(const StoredMatrix& weight, int segments,
                                       WeightEncoding encoding) override;
  Result<std::unique_ptr<GroupedLinear>> load_grouped(std::span<const StoredMatrix> weights,
                                                      int segments,
                                                      WeightEncoding encoding) override;
  Result<DeviceTensor> load_table(const StoredMatrix& weight) override;
  Result<void> widen(Linear& weight) override;
  Result<void> widen(GroupedLinear& weight) override;
  Result<LoadedWeights> finish_loading(
      const std::function<void(const LoadedWeights&)>& progress) override;
  std::unique_ptr<Linear> share_table(const Tensor& table) override;

 private:
  /// Begins to upload `weight` to `device` [rows, columns], with `scales` as codes.
  void begin_load(const StoredMatrix& weight, const Tensor& device, const Tensor& scales = {});
  /// True if a matrix [n, k] is held as `encoding` says, not plain.
  bool encodes(WeightEncoding encoding, std::int64_t n, std::int64_t k) const;
  /// The same of experts' matrices.
  bool encodes_experts(WeightEncoding encoding, std::int64_t experts, std::int64_t n,
                       std::int64_t k) const;
  /// True if W8a8Gemm multiplies matrices [n, k] in the codes of `encoding`, fp8 or w8a8.
  bool multiplies_codes(WeightEncoding encoding, std::int64_t n, std::int64_t k) const;
  /// True if a matrix is held as int8 codes that are multiplied with rows that become such codes.
  bool rounds_rows_to_int8(const StoredMatrix& weight, WeightEncoding encoding) const;
  /// Sets decoded_, too, if codes may be widened.
  Result<W8a8Matrix> allocate_codes(const Shape& shape, CodeKind kind = CodeKind::e4m3);
  /// Sets decoded_.
  Result<void> allocate_decoded();
  std::unique_ptr<Linear> rounding_linear(W8a8Matrix matrix);
  std::unique_ptr<GroupedLinear> fp8_grouped(W8a8Matrix all);
  /// The panels of a matrix, or of each expert's, that is held as codes, or why it is not.
  PanelChoice panels_of(std::span<const StoredMatrix> weights, WeightEncoding encoding,
                        bool are_experts) const;
  /// Begins to upload the codes of a matrix: int8 ones for which rounds_rows_to_int8, or panels.
  Result<std::unique_ptr<Linear>> load_row_codes(const StoredMatrix& weight,
                                                 WeightEncoding encoding, WeightUpload& upload);
  Result<std::unique_ptr<Linear>> load_codes(const StoredMatrix& weight, WeightEncoding encoding,
                                             const CodedPanels& panels, WeightUpload& upload);
  Result<std::unique_ptr<GroupedLinear>> load_codes(std::span<const StoredMatrix> experts,
                                                    WeightEncoding encoding,
                                                    const CodedPanels& panels,
                                                    WeightUpload& upload);
  std::unique_ptr<WeightUpload> new_upload();
  /// Uploads `weight` (f32, bf16 or f16) in the Ops' dtype to `device`, and waits for it.
  Result<void> upload_weight(const Tensor& weight, const Tensor& device);

  std::unique_ptr<WeightUpload> upload_;  ///< until finish_loading()
  /// Where parts of matrices of codes become bf16; null: there is none yet.
  std::shared_ptr<const DeviceTensor> decoded_;
};

}  // namespace troupe
