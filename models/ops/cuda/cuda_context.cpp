#include "models/ops/cuda/cuda_context.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "models/ops/cuda/common/small_copy.hpp"
#include "parallel/device/xid_events.hpp"

namespace troupe {

Result<std::unique_ptr<CudaContext>> CudaContext::create(const CudaOpsOptions& options) {
  std::unique_ptr<CudaContext> context(new CudaContext(options));
  (void)context->stream();  // makes the device this thread's
  context->check(cudaStreamCreateWithFlags(&context->stream_, cudaStreamNonBlocking),
                 "cudaStreamCreate");
  std::array<char, 32> address{};
  if (cudaDeviceGetPCIBusId(address.data(), address.size(), options.device) == cudaSuccess) {
    context->pci_address_ = address.data();
    std::ranges::transform(context->pci_address_, context->pci_address_.begin(),
                           [](unsigned char letter) { return std::tolower(letter); });
  }
  TROUPE_CHECK(context->status());
  return context;
}

CudaContext::~CudaContext() {
  if (stream_ == nullptr) return;
  cudaStreamSynchronize(stream());
  cudaStreamDestroy(stream_);
}

cudaStream_t CudaContext::stream() {
  ++uses_;
  thread_local int current = -1;
  if (current != options_.device) {
    const cudaError_t error = cudaSetDevice(options_.device);
    check(error, "cudaSetDevice");
    current = error == cudaSuccess ? options_.device : -1;
  }
  return stream_;
}

void CudaContext::check(cudaError_t error, std::string_view operation) {
  if (error == cudaSuccess || error_) return;
  const std::string events = pci_address_.empty() ? "" : latest_xid_events(pci_address_, begin_);
  error_ = fail(ErrorCode::internal, "device {}: {} failed: {} ({}){}{}", options_.device,
                operation, cudaGetErrorString(error), cudaGetErrorName(error),
                events.empty() ? "" : "; the kernel's log: ", events);
}

void CudaContext::check(const Result<void>& done) {
  if (done.ok() || error_) return;
  error_ = fail(done.error().code, "device {}: {}", options_.device, done.error().message);
}

Result<void> CudaContext::status() const {
  if (error_) return *error_;
  return {};
}

Result<void> CudaContext::synchronize() {
  TROUPE_TRY(const cudaError_t ended, watch_->wait(stream()));
  check(ended, "an operation enqueued before");
  return status();
}

Result<DeviceTensor> CudaContext::allocate(DType dtype, const Shape& shape) {
  TROUPE_TRY(DeviceTensor memory, allocate_unset(dtype, shape));
  check(cudaMemsetAsync(memory->data(), 0, memory->bytes(), stream()), "cudaMemset");
  return memory;
}

Result<DeviceTensor> CudaContext::allocate_unset(DType dtype, const Shape& shape,
                                                 std::int64_t behind) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements() + behind) * size_of(dtype);
  (void)stream();
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, std::max<std::size_t>(bytes, 1));
  if (error != cudaSuccess && error != cudaErrorMemoryAllocation) {
    check(error, "cudaMalloc");
    return *error_;
  }
  if (error != cudaSuccess) {
    std::size_t free = 0, total = 0;
    cudaGetLastError();  // the error is reported here, not by the next operation
    cudaMemGetInfo(&free, &total);
    return fail(
        ErrorCode::resource_exhausted,
        "device {}: no memory for {} bytes, a tensor {} of {}: {} of {} bytes are free ({})",
        options_.device, bytes, shape.to_string(), to_string(dtype), free, total,
        cudaGetErrorString(error));
  }
  return DeviceTensor(Tensor(memory, dtype, shape), [](void* of) { cudaFree(of); });
}

void CudaContext::upload(const Tensor& host, const Tensor& device) {
  if (host.empty()) return;
  check(copy_small(device.data(), host.data(), host.bytes(), cudaMemcpyHostToDevice, stream()),
        "upload");
}

}  // namespace troupe
