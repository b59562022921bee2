#include "models/ops/cuda/common/device_buffer.hpp"

#include "models/ops/cuda/cuda_error.hpp"

namespace troupe {

Result<DeviceBuffer> DeviceBuffer::allocate(std::size_t bytes, std::string_view what) {
  void* memory = nullptr;
  TROUPE_CHECK(cuda_done(cudaMalloc(&memory, bytes), what));
  DeviceBuffer buffer;
  buffer.memory_.reset(memory);
  buffer.bytes_ = bytes;
  return buffer;
}

Result<DeviceBuffer> DeviceBuffer::allocate_zeros(std::size_t bytes, std::string_view what) {
  TROUPE_TRY(DeviceBuffer buffer, allocate(bytes, what));
  TROUPE_CHECK(cuda_done(cudaMemset(buffer.data(), 0, bytes), what));
  // Streams that do not wait for the default one use it.
  TROUPE_CHECK(cuda_done(cudaStreamSynchronize(nullptr), what));
  return buffer;
}

}  // namespace troupe
