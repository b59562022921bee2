#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <cuda_runtime.h>

#include "models/ops/cuda/common/output_memory.hpp"
#include "models/ops/cuda/cuda_ops.hpp"
#include "parallel/device/cuda/stream_watch.hpp"

namespace troupe {

/// The components of a GPU's Ops share this: the stream on which all of them enqueue, and the first
/// error. It outlives the components. Any thread may use it, one at a time.
class CudaContext {
 public:
  /// Errors: internal.
  static Result<std::unique_ptr<CudaContext>> create(const CudaOpsOptions& options);
  /// Waits for the stream.
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  int device() const { return options_.device; }
  DType dtype() const { return options_.dtype; }
  bool deterministic() const { return options_.deterministic; }
  bool always_cascades() const { return options_.always_cascades; }
  const CudaOpsOptions& options() const { return options_; }

  /// Returns the stream and makes its device this thread's.
  cudaStream_t stream();
  /// How often stream() was called: while it stays the same, no operation of the Ops is enqueued.
  std::uint64_t uses() const { return uses_; }
  /// Waits for the stream, and for other ranks if their operations are on it.
  const std::shared_ptr<StreamWatch>& watch() const { return watch_; }

  /// Keeps the first failed operation, with what the GPU's driver has logged since (Xid, ECC).
  void check(cudaError_t error, std::string_view operation);
  void check(const Result<void>& done);
  void check_launch(std::string_view operation) { check(cudaPeekAtLastError(), operation); }
  /// Returns the error of the first failed operation, if one failed.
  Result<void> status() const;
  /// Waits for all enqueued operations and returns status().
  Result<void> synchronize();

  /// Allocates device memory, which the stream zeroes. Errors: resource_exhausted, which names the
  /// requested bytes.
  Result<DeviceTensor> allocate(DType dtype, const Shape& shape);
  /// Allocates uninitialised device memory, with `behind` more elements after the tensor. Errors:
  /// as allocate().
  Result<DeviceTensor> allocate_unset(DType dtype, const Shape& shape, std::int64_t behind = 0);
  /// Where products may write behind their outputs. Shared with the tensors there.
  const std::shared_ptr<OutputMemory>& outputs() const { return outputs_; }
  /// Enqueues a copy of host memory.
  void upload(const Tensor& host, const Tensor& device);

 private:
  explicit CudaContext(const CudaOpsOptions& options) : options_(options) {}

  CudaOpsOptions options_;
  cudaStream_t stream_ = nullptr;
  std::uint64_t uses_ = 0;
  std::string pci_address_;  ///< 0000:19:00.0; empty: unknown
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::shared_ptr<StreamWatch> watch_ = std::make_shared<StreamWatch>();
  std::shared_ptr<OutputMemory> outputs_ = std::make_shared<OutputMemory>();
  std::optional<Error> error_;
};

/// The base of components: the context's members under short names.
class CudaComponent {
 protected:
  explicit CudaComponent(CudaContext& context)
      : context_(context), dtype_(context.dtype()), deterministic_(context.deterministic()) {}

  cudaStream_t stream() { return context_.stream(); }
  void check(cudaError_t error, std::string_view operation) { context_.check(error, operation); }
  void check(const Result<void>& done) { context_.check(done); }
  void check_launch(std::string_view operation) { context_.check_launch(operation); }

  CudaContext& context_;
  const DType dtype_;
  const bool deterministic_;
};

}  // namespace troupe
