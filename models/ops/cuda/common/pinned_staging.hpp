#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include <cuda_runtime.h>

#include "models/ops/cuda/common/device_buffer.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Device memory that the host refills for each pass. The host side is double-buffered and
/// page-locked, so that a plan can be made while the previous one is still being copied. One thread
/// at a time.
class PinnedStaging {
 public:
  /// Errors: resource_exhausted.
  static Result<std::unique_ptr<PinnedStaging>> create(std::size_t bytes);
  ~PinnedStaging();
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;

  /// Returns the memory to fill and then upload; waits until its last upload is done. Errors:
  /// internal.
  Result<std::byte*> next();
  /// Enqueues the upload of the first `bytes` of the last next(). Errors: internal.
  Result<void> upload(std::size_t bytes, cudaStream_t stream);
  std::size_t bytes() const { return device_.bytes(); }
  std::byte* device() const { return device_.data(); }

 private:
  struct Copy {
    std::byte* host = nullptr;  ///< page-locked
    cudaEvent_t uploaded = nullptr;
  };

  PinnedStaging() = default;

  DeviceBuffer device_;
  std::array<Copy, 2> copies_;
  std::size_t turn_ = 0;
};

}  // namespace troupe
