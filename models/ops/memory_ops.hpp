#pragma once

#include <cstdint>
#include <optional>

#include "models/ops/op_checks.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A device's own memory.
struct DeviceMemory {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

/// Memory of a device, and copies to and from it.
class MemoryOps {
 public:
  virtual ~MemoryOps() = default;

  /// None if the device shares the host's memory.
  virtual std::optional<DeviceMemory> available() = 0;

  /// Device memory, zeroed; resource_exhausted names the bytes asked for.
  virtual Result<DeviceTensor> allocate(DType dtype, const Shape& shape) = 0;

  /// Device memory as of allocate, for outputs of products (DenseOps::linear): behind an output
  /// that is not the whole tensor a product may leave undefined rows, which some GEMMs compute
  /// rather than a part of a tile. No such row may be read before it is written anew,
  /// nor be under way on another stream.
  virtual Result<DeviceTensor> allocate_outputs(DType dtype, const Shape& shape) {
    return allocate(dtype, shape);
  }

  /// Host memory, zeroed, that the device can access asynchronously: with other memory the host may
  /// wait for copies.
  virtual Result<DeviceTensor> allocate_host(DType dtype, const Shape& shape) = 0;

  /// Host to device and back; both dense, equal dtype and element count.
  void upload(const Tensor& host, const Tensor& device) {
    if constexpr (op_checks::enabled) op_checks::copy(host, device);
    do_upload(host, device);
  }

  void download(const Tensor& device, const Tensor& host) {
    if constexpr (op_checks::enabled) op_checks::copy(device, host);
    do_download(device, host);
  }

 private:
  virtual void do_upload(const Tensor& host, const Tensor& device) = 0;
  virtual void do_download(const Tensor& device, const Tensor& host) = 0;
};

}  // namespace troupe
