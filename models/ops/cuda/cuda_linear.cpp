#include "models/ops/cuda/cuda_linear.hpp"

#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/cuda/gemm/arrange_panels.hpp"

namespace troupe {

Result<void> CudaGroupedLinear::widen(cudaStream_t stream) {
  if (layout_) return {};
  const std::int64_t n = out_features(), k = in_features();
  if (room_ == nullptr || !rounds_rows()) {
    return fail(ErrorCode::unsupported, "matrices [{}, {}] of {} experts have no other kernel", n,
                k, experts());
  }
  TROUPE_CHECK(
      cuda_done(launch_arrange_in_place(CodeKind::e4m3, weights_->as<std::uint8_t>(), experts() * n,
                                        k, scales_->as<float>(), (*room_)->data(),
                                        static_cast<std::int64_t>((*room_)->bytes()), stream),
                "arranging experts' codes in panels"));
  layout_ = CodedPanels{.kind = CodeKind::e4m3, .rows = n, .columns = k};
  kernel_ = describe(*layout_) + ", activations as bf16 (W8A16)";
  return {};
}

}  // namespace troupe
