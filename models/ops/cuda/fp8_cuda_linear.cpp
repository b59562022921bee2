#include "models/ops/cuda/fp8_cuda_linear.hpp"

#include <algorithm>

#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/cuda/gemm/arrange_panels.hpp"

namespace troupe {

Result<void> Fp8CudaLinear::widen(cudaStream_t stream) {
  if (widened_ != nullptr) return {};
  if (decoded_ == nullptr) return CudaLinear::widen(stream);
  const CodedPanels layout{.kind = CodeKind::e4m3, .rows = n_, .columns = k_};
  auto* const codes = weight_.codes->as<std::uint8_t>();
  auto* const scales = weight_.scales->as<float>();
  // Panels are at least as long as their rows, so the last rows go first. The rows of a part are
  // copied out of the way of its panels.
  const auto room = static_cast<std::int64_t>((*decoded_)->bytes());
  const std::int64_t at_once = std::max(room / k_ / panel_rows, std::int64_t{1}) * panel_rows;
  for (std::int64_t end = n_; end > 0;) {
    const std::int64_t count = std::min(at_once, end), first = end - count;
    TROUPE_CHECK(cuda_done(
        cudaMemcpyAsync((*decoded_)->data(), codes + first * k_,
                        static_cast<std::size_t>(count * k_), cudaMemcpyDeviceToDevice, stream),
        "copying codes"));
    TROUPE_CHECK(cuda_done(
        launch_arrange_panels(static_cast<const std::uint8_t*>((*decoded_)->data()), count, k_,
                              codes + first / panel_rows * layout.panel_bytes(), scales + first,
                              stream),
        "arranging codes in panels"));
    end = first;
  }
  widened_ = std::make_unique<CodedCudaLinear>(
      CodedMatrix{layout, std::move(weight_.codes), std::move(weight_.scales)}, decoded_);
  return {};
}

}  // namespace troupe
