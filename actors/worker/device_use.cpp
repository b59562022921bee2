#include "actors/worker/device_use.hpp"

#include <fmt/format.h>

namespace troupe {

std::string in_gib(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string describe(const DeviceUse& use) {
  return fmt::format(
      "{}: {} CUDA's own and other processes', {} weights, {} buffers of passes, {} for logits, "
      "sampling and recorded passes; {} free",
      in_gib(use.total), in_gib(use.elsewhere), in_gib(use.weights), in_gib(use.buffers),
      in_gib(use.later), in_gib(use.free));
}

}  // namespace troupe
