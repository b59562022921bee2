#include "models/ops/cuda/w8a8_cuda_linear.hpp"

#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/cuda/gemm/arrange_panels.hpp"

namespace troupe {

Result<void> W8a8CudaLinear::widen(cudaStream_t stream) {
  if (widened_ != nullptr) return {};
  if (decoded_ == nullptr) return CudaLinear::widen(stream);
  const CodedPanels layout{.kind = weight_.kind, .rows = n_, .columns = k_};
  TROUPE_CHECK(
      cuda_done(launch_arrange_in_place(layout.kind, weight_.codes->as<std::uint8_t>(), n_, k_,
                                        weight_.scales->as<float>(), (*decoded_)->data(),
                                        static_cast<std::int64_t>((*decoded_)->bytes()), stream),
                "arranging codes in panels"));
  widened_ = std::make_unique<CodedCudaLinear>(
      CodedMatrix{layout, std::move(weight_.codes), std::move(weight_.scales)}, decoded_);
  return {};
}

}  // namespace troupe
