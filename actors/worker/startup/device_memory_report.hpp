#pragma once

#include <cstdint>
#include <string>

#include "models/ops/ops.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The uses of a device's memory once a worker has loaded its model, in bytes. All 0 if the device
/// shares the host's memory.
struct DeviceMemoryReport {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
  std::uint64_t elsewhere = 0;  ///< CUDA's own, and other processes'
  std::uint64_t weights = 0;
  std::uint64_t buffers = 0;  ///< for passes, and those shared between ranks
  std::uint64_t later = 0;    ///< part of `free`: what start() takes besides the KV cache

  template <class Archive>
  void fields(Archive& archive) {
    archive(total, free, elsewhere, weights, buffers, later);
  }
};

/// `before`: the device's memory before the worker took any; `after`: once it has loaded `weights`
/// bytes of weights.
DeviceMemoryReport device_memory_report(const DeviceMemory& before, const DeviceMemory& after,
                                        std::uint64_t weights, std::uint64_t later);

/// "1.5 GiB".
std::string in_gib(std::uint64_t bytes);

/// "139.8 GiB: 0.6 GiB CUDA's own and other processes', 15.3 GiB weights, ...".
std::string describe(const DeviceMemoryReport& use);

// If memory ran out (resource_exhausted): `error` with the uses of the device's memory and a
// remedy; otherwise `error` as it is.

/// For loading a model with `weights` bytes of weights on this rank.
Error with_memory_of_load(Error error, const DeviceMemory& before, std::uint64_t weights,
                          std::int64_t max_batch_tokens);
/// For what follows, above all a KV cache of `kv_bytes`. `now`: the device's memory.
Error with_memory_of_start(Error error, const DeviceMemory& now, std::uint64_t weights,
                           std::uint64_t kv_bytes);

}  // namespace troupe
