#include "models/ops/cuda/stream_marks.hpp"

#include <algorithm>
#include <cstring>

#include "models/ops/cuda/cuda_ops_impl.hpp"

namespace troupe {

cudaError_t StreamMarks::make(cudaStream_t stream, std::uint64_t& mark) {
  Event& event = events_[made_ % remembered];
  if (event == nullptr) {
    cudaEvent_t created = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&created, cudaEventDisableTiming);
    if (error != cudaSuccess) return error;
    event.reset(created);
  }
  mark = made_++;
  return cudaEventRecord(event.get(), stream);
}

Result<cudaError_t> StreamMarks::wait(std::uint64_t mark, StreamWatch& watch) {
  const Event& event = events_[mark % remembered];
  if (event == nullptr) return cudaSuccess;
  return watch.wait(event.get());
}

bool StreamMarks::query(std::uint64_t mark, StreamWatch& watch) const {
  const Event& event = events_[mark % remembered];
  return event == nullptr || watch.would_end(event.get());
}

bool CudaOps::query(DeviceEvent event) { return marks_.query(event, *watch_); }

Ops::DeviceEvent CudaOps::record_event() {
  DeviceEvent event = 0;
  check(marks_.make(stream(), event), "cudaEventRecord");
  return event;
}

Result<void> CudaOps::wait(DeviceEvent event) {
  (void)stream();
  TROUPE_TRY(const cudaError_t status, marks_.wait(event, *watch_));
  check(status, "an operation enqueued before");
  if (error_) return *error_;
  return {};
}

Result<DeviceTensor> CudaOps::allocate_host(DType dtype, const Shape& shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  (void)stream();
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, std::max<std::size_t>(bytes, 1));
  if (error != cudaSuccess) {
    cudaGetLastError();  // the error is reported here, not by the next operation
    return fail(ErrorCode::resource_exhausted,
                "device {}: no {} bytes of page-locked memory for a tensor {} of {} ({})", device_,
                bytes, shape.to_string(), to_string(dtype), cudaGetErrorString(error));
  }
  std::memset(memory, 0, bytes);
  return DeviceTensor(Tensor(memory, dtype, shape), [](void* of) { cudaFreeHost(of); });
}

}  // namespace troupe
