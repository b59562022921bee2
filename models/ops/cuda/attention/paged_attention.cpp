#include "models/ops/cuda/attention/paged_attention.hpp"

namespace troupe {

Result<PartMemory> PartMemory::create(std::int64_t sums, std::int64_t scales,
                                      std::int64_t counters) {
  constexpr std::string_view what = "memory for attention";
  const auto bytes = [](std::int64_t count, std::size_t each) {
    return static_cast<std::size_t>(count) * each;
  };
  PartMemory memory;
  TROUPE_TRY(memory.sums, DeviceBuffer::allocate(bytes(sums, sizeof(float)), what));
  TROUPE_TRY(memory.scales, DeviceBuffer::allocate(bytes(scales, sizeof(float2)), what));
  TROUPE_TRY(memory.finished,
             DeviceBuffer::allocate_zeros(bytes(counters, sizeof(unsigned)), what));
  return memory;
}

}  // namespace troupe
