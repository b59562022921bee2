#pragma once

#include <cstdint>

namespace troupe::cuda {

/// Writes the exclusive prefix sums of of(0) .. of(count - 1) to offsets [count + 1]; the last is
/// the total. of(i) may read offsets[i]. Called by one warp.
template <class Total>
__device__ void sum_up(Total&& of, int count, std::int32_t* offsets) {
  const int lane = threadIdx.x % 32;
  std::int32_t before = 0;
  for (int begin = 0; begin < count; begin += 32) {
    const int i = begin + lane;
    const std::int32_t total = i < count ? of(i) : 0;
    std::int32_t sum = total;
    for (int distance = 1; distance < 32; distance *= 2) {
      const std::int32_t other = __shfl_up_sync(~0U, sum, distance);
      if (lane >= distance) sum += other;
    }
    if (i < count) offsets[i] = before + sum - total;
    before += __shfl_sync(~0U, sum, 31);
  }
  if (lane == 0) offsets[count] = before;
}

}  // namespace troupe::cuda
