#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// What has a device's memory once a worker has loaded its model, in bytes. All 0 where the device
/// shares the host's.
struct DeviceUse {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
  std::uint64_t elsewhere = 0;  ///< CUDA's own, and other processes'
  std::uint64_t weights = 0;
  std::uint64_t buffers = 0;  ///< of passes, and those that ranks share
  std::uint64_t later = 0;    ///< of `free`: what start() takes besides the KV cache

  template <class Archive>
  void fields(Archive& archive) {
    archive(total, free, elsewhere, weights, buffers, later);
  }
};

/// "1.5 GiB".
std::string in_gib(std::uint64_t bytes);

/// "139.8 GiB: 0.6 GiB CUDA's own and other processes', 15.3 GiB weights, ...".
std::string describe(const DeviceUse& use);

}  // namespace troupe
