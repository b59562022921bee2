#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include <cuda_runtime.h>

#include "runtime/base/result.hpp"

namespace troupe {

/// Owns memory of the current device; empty until allocated. Freeing it waits for kernels that use
/// it.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// `what` completes "... failed". Errors: resource_exhausted, internal.
  static Result<DeviceBuffer> allocate(std::size_t bytes, std::string_view what);
  /// The same, of zeros that every stream sees.
  static Result<DeviceBuffer> allocate_zeros(std::size_t bytes, std::string_view what);

  template <class T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }
  std::byte* data() const { return as<std::byte>(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };

  std::unique_ptr<void, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace troupe
