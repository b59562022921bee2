#include "models/ops/cuda/memory/cuda_memory_ops.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "models/ops/cuda/common/small_copy.hpp"

namespace troupe {

std::optional<DeviceMemory> CudaMemoryOps::available() {
  std::size_t free = 0, total = 0;
  (void)stream();
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  if (!context_.status().ok()) return std::nullopt;
  return DeviceMemory{free, total};
}

Result<DeviceTensor> CudaMemoryOps::allocate(DType dtype, const Shape& shape) {
  return context_.allocate(dtype, shape);
}

Result<DeviceTensor> CudaMemoryOps::allocate_outputs(DType dtype, const Shape& shape) {
  TROUPE_TRY(DeviceTensor memory, context_.allocate(dtype, shape));
  const std::shared_ptr<OutputMemory> outputs = context_.outputs();
  outputs->add(static_cast<std::byte*>(memory->data()), memory->bytes());
  const Tensor view = memory.view();
  auto owner = std::make_shared<DeviceTensor>(std::move(memory));
  return DeviceTensor(view, [outputs, owner = std::move(owner)](void* begin) {
    outputs->remove(static_cast<std::byte*>(begin));
  });
}

Result<DeviceTensor> CudaMemoryOps::allocate_host(DType dtype, const Shape& shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  (void)stream();
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, std::max<std::size_t>(bytes, 1));
  if (error != cudaSuccess) {
    cudaGetLastError();  // it is told here, not by the next operation
    return fail(ErrorCode::resource_exhausted,
                "device {}: no {} bytes of page-locked memory for a tensor {} of {} ({})",
                context_.device(), bytes, shape.to_string(), to_string(dtype),
                cudaGetErrorString(error));
  }
  std::memset(memory, 0, bytes);
  return DeviceTensor(Tensor(memory, dtype, shape), [](void* of) { cudaFreeHost(of); });
}

void CudaMemoryOps::do_upload(const Tensor& host, const Tensor& device) {
  context_.upload(host, device);
}

void CudaMemoryOps::do_download(const Tensor& device, const Tensor& host) {
  if (host.empty()) return;
  check(copy_small(host.data(), device.data(), host.bytes(), cudaMemcpyDeviceToHost, stream()),
        "download");
}

}  // namespace troupe
