#pragma once

#include "models/ops/cuda/cuda_context.hpp"
#include "models/ops/memory_ops.hpp"

namespace troupe {

/// Memory of a GPU, and page-locked memory of the host.
class CudaMemoryOps final : public MemoryOps, private CudaComponent {
 public:
  explicit CudaMemoryOps(CudaContext& context) : CudaComponent(context) {}

  std::optional<DeviceMemory> available() override;
  Result<DeviceTensor> allocate(DType dtype, const Shape& shape) override;
  Result<DeviceTensor> allocate_outputs(DType dtype, const Shape& shape) override;
  Result<DeviceTensor> allocate_host(DType dtype, const Shape& shape) override;

 private:
  void do_upload(const Tensor& host, const Tensor& device) override;
  void do_download(const Tensor& device, const Tensor& host) override;
};

}  // namespace troupe
