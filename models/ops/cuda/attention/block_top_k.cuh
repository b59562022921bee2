#pragma once

#include <cstdint>

namespace troupe::cuda {

/// A number whose order is that of the floats, negative ones included.
__device__ inline std::uint32_t ordered_bits(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// Returns how many of the block's threads before this one have `flag`, and sets `total` to the
/// number of all. All threads call it.
template <int threads>
__device__ int count_before(bool flag, int& total) {
  __shared__ int of_warp[threads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const unsigned votes = __ballot_sync(~0U, flag);
  if (lane == 0) of_warp[warp] = __popc(votes);
  __syncthreads();
  int before = __popc(votes & ((1U << lane) - 1U));
  total = 0;
  for (int i = 0; i < threads / 32; ++i) {
    before += i < warp ? of_warp[i] : 0;
    total += of_warp[i];
  }
  __syncthreads();  // before the next call writes
  return before;
}

/// Finds the `wanted` entries of [begin, end) with the largest bits(entry), ordered_bits; of equals
/// the earlier ones. Calls emit(place, entry) for each, by one of the block's threads, with places
/// from 0 on in ascending order of entries. All threads call it; 1 <= wanted <= end - begin.
///
/// The bits of the last one are found eight at a time from the highest on, among the entries that
/// begin with those that are found already (radix select).
template <int threads, class Bits, class Emit>
__device__ void find_top_k(int begin, int end, int wanted, Bits bits, Emit emit) {
  static_assert(threads >= 256, "a thread for each of the counts");
  __shared__ int counts[256];
  __shared__ std::uint32_t last;
  __shared__ int equals_wanted;
  const int own = static_cast<int>(threadIdx.x);
  __syncthreads();  // an earlier call may read them
  if (own == 0) {
    last = 0;
    equals_wanted = wanted;
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (own < 256) counts[own] = 0;
    __syncthreads();
    for (int entry = begin + own; entry < end; entry += threads) {
      const std::uint32_t found = bits(entry);
      const bool is_candidate = shift == 24 || found >> (shift + 8) == last >> (shift + 8);
      if (is_candidate) atomicAdd(&counts[found >> shift & 255U], 1);
    }
    __syncthreads();
    if (own == 0) {
      int digit = 255;
      while (digit > 0 && counts[digit] < equals_wanted) equals_wanted -= counts[digit--];
      last |= static_cast<std::uint32_t>(digit) << shift;
    }
    __syncthreads();
  }
  int equals = 0, emitted = 0;
  for (int tile = begin; tile < end; tile += threads) {
    const int entry = tile + own;
    const std::uint32_t found = entry < end ? bits(entry) : 0;
    int all_equal = 0, all_kept = 0;
    const bool is_equal = entry < end && found == last;
    const int equals_before = equals + count_before<threads>(is_equal, all_equal);
    const bool keeps = entry < end && (found > last || (is_equal && equals_before < equals_wanted));
    const int place = emitted + count_before<threads>(keeps, all_kept);
    if (keeps) emit(place, entry);
    equals += all_equal;
    emitted += all_kept;
  }
}

}  // namespace troupe::cuda
