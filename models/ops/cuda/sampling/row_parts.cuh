// A row of logits in the shared memory of a cluster of blocks, one part per block: read once from
// device memory, then used as often as a choice needs.
//
// All threads of all parts call RowPart's functions together. Parts exchange data by writing into
// each other's shared memory, between two barriers of the cluster; so a part that has returned is
// never touched. Buffers of exchanges alternate: a part can be one exchange ahead of another, not
// two.
#pragma once

#include <climits>
#include <cstdint>

#include <cooperative_groups.h>

#include "models/ops/cuda/sampling/part_memory.cuh"
#include "models/ops/cuda/sampling/sampler_arithmetic.cuh"

namespace troupe::cuda {

class RowPart {
 public:
  /// A part has `chunk` logits, a multiple of four; the last parts may have fewer or none.
  __device__ RowPart(PartMemory& memory, std::int32_t vocab, std::int32_t chunk)
      : memory_(memory),
        rank_(static_cast<int>(cooperative_groups::this_cluster().block_rank())),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        begin_(rank_ * chunk),
        count_(max(min(chunk, vocab - begin_), 0)) {
    const int padded = (count_ + 3) / 4 * 4;
    const int segment = ((padded + part_warps - 1) / part_warps + 127) / 128 * 128;
    first_ = min(warp_ * segment, padded);
    end_ = min(first_ + segment, padded);
    clear_bins();
    if (threadIdx.x == 0) memory_.listed = memory_.own_listed = 0;
    __cluster_barrier_arrive();  // load() waits: from then on others may write here
  }

  __device__ bool is_first() const { return rank_ == 0; }
  __device__ int begin() const { return begin_; }  // the id of its first value
  __device__ PartMemory& memory() { return memory_; }

  __device__ int count() const { return count_; }
  __device__ float* values() { return memory_.values; }

  /// Reads the part; returns the row's maximum. With `tell_groups`, all parts then know the groups'
  /// maxima.
  __device__ Best load(const float* row, bool aligned, bool tell_groups) {
    const Best own = aligned ? read<true>(row + begin_) : read<false>(row + begin_);
    __cluster_barrier_wait();
    return best_of_row(own, tell_groups);
  }

  /// Finds the row's maximum again, after its values have changed.
  __device__ Best find_best() {
    Best own{-INFINITY, INT_MAX, 0};
    for_each<false>([&](float value, int i) {
      if (value > own.logit) own = {value, begin_ + i, 0};
    });
    return best_of_row(own, true);
  }

  /// Calls visit(value, index) for each value of the part, and for padding after them (-inf, or
  /// what visit made of it). `writes`: changes by visit are kept.
  template <bool writes, class Visit>
  __device__ __forceinline__ void for_each(Visit&& visit) {
#pragma unroll 2
    for (int i = first_ + lane_ * 4; i < end_; i += 128) {
      float4* const values = reinterpret_cast<float4*>(memory_.values + i);
      float4 four = *values;
      visit(four.x, i), visit(four.y, i + 1), visit(four.z, i + 2), visit(four.w, i + 3);
      if (writes) *values = four;
    }
  }

  /// Sums measure(value, index) over the row.
  template <bool writes, class Measure>
  __device__ PartSums sum(Measure&& measure) {
    std::uint64_t own = 0;
    for_each<writes>([&](float& value, int i) { own += measure(value, i); });
    own = sum_of_warp(own);
    if (lane_ == 0) memory_.warp_sums[warp_] = own;
    __syncthreads();
    if (threadIdx.x < row_parts) {
      std::uint64_t of_part = 0;
      for (const std::uint64_t of_warp : memory_.warp_sums) of_part += of_warp;
      *in_part(threadIdx.x, &memory_.part_sums[exchange_][rank_]) = of_part;
    }
    barrier();
    PartSums sums{0, 0};
    for (int part = 0; part < row_parts; ++part) {
      const std::uint64_t of_part = memory_.part_sums[exchange_][part];
      if (part < rank_) sums.before += of_part;
      sums.total += of_part;
    }
    exchange_ ^= 1;
    return sums;
  }

  /// After sum() of the same measure: one thread of the row calls found(id) with the first id, in
  /// rising order, at which the running sum exceeds `target`, which is below the total.
  template <class Measure, class Found>
  __device__ void locate(const PartSums& sums, std::uint64_t target, Measure&& measure,
                         Found&& found) {
    std::uint64_t before = sums.before;
    for (int warp = 0; warp < warp_; ++warp) before += memory_.warp_sums[warp];
    if (target < before || target >= before + memory_.warp_sums[warp_]) return;
    for (int base = first_; base < end_; base += 128) {
      const int i = base + lane_ * 4;
      std::uint64_t own[4], of_lane = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        own[j] = i < end_ ? measure(memory_.values[i + j], i + j) : 0;
        of_lane += own[j];
      }
      const std::uint64_t running = running_sum_of_warp(of_lane);
      std::uint64_t reached = before + running - of_lane;
      if (target >= reached && target < reached + of_lane) {
        int j = 0;
        while (target >= reached + own[j]) reached += own[j++];
        found(begin_ + i + j);
      }
      before += __shfl_sync(~0U, running, 31);
      if (target < before) return;
    }
  }

  /// Like locate, but all parts get the id.
  template <class Measure>
  __device__ std::int32_t locate_for_all(const PartSums& sums, std::uint64_t target,
                                         Measure&& measure) {
    locate(sums, target, measure, [&](std::int32_t id) {
      for (int part = 0; part < row_parts; ++part) *in_part(part, &memory_.reported_id) = id;
    });
    barrier();
    return memory_.reported_id;
  }

  /// Sends the result of find() in part 0's first thread to all. All parts are done with the row
  /// when it returns.
  template <class Find>
  __device__ std::uint32_t tell(Find&& find) {
    if (rank_ == 0 && threadIdx.x == 0) {
      const std::uint32_t found = find();
      for (int part = 0; part < row_parts; ++part) *in_part(part, &memory_.reported_next) = found;
    }
    barrier();
    return memory_.reported_next;
  }

  /// Puts the values for which keep(value, id) holds into part 0's list, in any order; returns
  /// their number. If more than max_listed, the list is void.
  template <class Keep>
  __device__ std::uint32_t list(Keep&& keep) {
    for_each<false>([&](float value, int i) {
      if (!keep(value, begin_ + i)) return;
      if (atomicAdd(&memory_.own_listed, 1U) >= max_listed) return;
      const std::uint32_t at = atomicAdd(in_part(0, &memory_.listed), 1U);
      if (at >= max_listed) return;
      *in_part(0, &memory_.list.values[at]) = value;
      *in_part(0, &memory_.list.ids[at]) = begin_ + i;
    });
    __syncthreads();
    if (threadIdx.x < row_parts) {
      *in_part(threadIdx.x, &memory_.part_counts[exchange_][rank_]) = memory_.own_listed;
    }
    barrier();
    if (threadIdx.x == 0) memory_.listed = memory_.own_listed = 0;
    std::uint32_t listed = 0;
    for (const std::uint32_t of_part : memory_.part_counts[exchange_]) listed += of_part;
    exchange_ ^= 1;
    __syncthreads();
    return listed;
  }

  /// Adds `digits`, at most 2^24, to a bin of this part's histogram.
  __device__ __forceinline__ void add_to_bin(std::uint32_t bin, std::uint32_t digits) {
    if ((digits & 0xfff) != 0) atomicAdd(&memory_.low[bin], digits & 0xfff);
    if (digits >> 12 != 0) atomicAdd(&memory_.high[bin], digits >> 12);
  }

  /// Finds where the row's histogram, whose bins stand for digits << shift(bin), reaches
  /// limit(total) >= 1. Leaves the histogram empty.
  template <class Shift, class Limit>
  __device__ Crossing find_crossing(Shift&& shift, Limit&& limit) {
    __syncthreads();
    for (int bin = threadIdx.x; rank_ != 0 && bin < bins; bin += part_threads) {
      if (memory_.low[bin] != 0) atomicAdd(in_part(0, &memory_.low[bin]), memory_.low[bin]);
      if (memory_.high[bin] != 0) atomicAdd(in_part(0, &memory_.high[bin]), memory_.high[bin]);
    }
    __syncthreads();
    if (rank_ != 0) clear_bins();
    barrier();
    if (rank_ == 0) {
      const Crossing found = find_own_crossing(shift, limit);
      clear_bins();
      if (threadIdx.x < row_parts) *in_part(threadIdx.x, &memory_.told) = found;
    }
    barrier();
    return memory_.told;
  }

  /// Refines a crossing at the keys' leading 11 bits down to single keys: key(value) of 32 bits,
  /// digits(value) with one shift for the whole bin.
  template <class Key, class Digits>
  __device__ CrossingKey narrow(const Crossing& leading, std::uint64_t limit, int shift, Key&& key,
                                Digits&& digits) {
    CrossingKey at{leading.bin, leading.above, limit};
    constexpr int widths[] = {11, 10};
    int below = 21;
#pragma unroll
    for (const int width : widths) {
      for_each<false>([&](float value, int) {
        const std::uint32_t own = key(value);
        if (own >> below != at.key) return;
        add_to_bin(own >> (below - width) & ((1U << width) - 1), digits(value));
      });
      const Crossing found = find_crossing([&](std::uint32_t) { return shift; },
                                           [&](std::uint64_t) { return at.limit - at.above; });
      at.key = at.key << width | found.bin;
      at.above += found.above;
      below -= width;
    }
    return at;
  }

  /// Finds the k-th largest logit, as a key of ordered().
  __device__ CrossingKey find_kth(std::uint32_t k) {
    const auto key = [](float value) { return ordered(value); };
    for_each<false>([&](float value, int) { add_to_bin(key(value) >> 21, 1); });
    const Crossing leading = find_crossing([](std::uint32_t) { return 0; },
                                           [&](std::uint64_t) { return std::uint64_t{k}; });
    return narrow(leading, k, 0, key, [](float) { return 1U; });
  }

  /// Returns a value that at least `k` logits reach, and seldom many more, if `best` is the
  /// largest, and load() or find_best() has exchanged the groups' maxima.
  __device__ float bound_of_best(std::uint32_t k, float best) {
    return cuda::bound_of_best(memory_.group_best[threadIdx.x], k, best);
  }

 private:
  __device__ void barrier() {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
  }

  template <class T>
  __device__ __forceinline__ T* in_part(int part, T* here) {
    return cooperative_groups::this_cluster().map_shared_rank(here, part);
  }

  __device__ void clear_bins() {
    for (int i = threadIdx.x; i < bins; i += part_threads) memory_.low[i] = memory_.high[i] = 0;
  }

  /// Reduces the maxima of all threads.
  __device__ Best best_of_row(const Best& own, bool tell_groups) {
    float group = own.logit;
#pragma unroll
    for (int lanes = 1; lanes < group_lanes; lanes *= 2) {
      group = fmaxf(group, __shfl_xor_sync(~0U, group, lanes));
    }
    if (tell_groups && lane_ % group_lanes == 0) {
      const int at = rank_ * part_groups + static_cast<int>(threadIdx.x) / group_lanes;
      for (int part = 0; part < row_parts; ++part) *in_part(part, &memory_.group_best[at]) = group;
    }
    const Best of_warp = best_of_warp(own);
    if (lane_ == 0) memory_.warp_best[warp_] = of_warp;
    __syncthreads();
    if (warp_ == 0) {
      const Best of_part =
          best_of_warp(lane_ < part_warps ? memory_.warp_best[lane_] : Best{-INFINITY, INT_MAX, 0});
      if (lane_ < row_parts) *in_part(lane_, &memory_.part_best[exchange_][rank_]) = of_part;
    }
    barrier();
    Best best = memory_.part_best[exchange_][0];
    for (int part = 1; part < row_parts; ++part) {
      best = better(best, memory_.part_best[exchange_][part]);
    }
    exchange_ ^= 1;
    return best;
  }

  template <bool aligned>
  __device__ __forceinline__ Best read(const float* logits) {
    constexpr int batch = 5;  // loads in flight
    Best best{-INFINITY, INT_MAX, 0};
    for (int base = first_ + lane_ * 4; base < end_; base += batch * 128) {
      float4 fours[batch];
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const int i = base + b * 128;
        const auto at = [&](int j) { return j < min(count_, end_) ? logits[j] : -INFINITY; };
        if constexpr (aligned) {
          fours[b] = i < end_ ? __ldcs(reinterpret_cast<const float4*>(logits + i))
                              : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
        } else {
          fours[b] = make_float4(at(i), at(i + 1), at(i + 2), at(i + 3));
        }
      }
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const int i = base + b * 128;
        if (i >= end_) break;
        *reinterpret_cast<float4*>(memory_.values + i) = fours[b];
        const float values[] = {fours[b].x, fours[b].y, fours[b].z, fours[b].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const bool real = aligned || i + j < count_;
          best.bad |= real && (__float_as_uint(values[j]) & 0x7f800000) == 0x7f800000;
          const bool larger = values[j] > best.logit;
          best.logit = larger ? values[j] : best.logit;
          best.id = larger ? begin_ + i + j : best.id;
        }
      }
    }
    return best;
  }

  /// find_crossing of this part's histogram alone, which is kept.
  template <class Shift, class Limit>
  __device__ Crossing find_own_crossing(Shift&& shift, Limit&& limit) {
    constexpr int each = bins / part_threads;
    const int largest = bins - 1 - each * static_cast<int>(threadIdx.x);
    std::uint64_t own[each], of_thread = 0;
#pragma unroll
    for (int j = 0; j < each; ++j) {
      const int bin = largest - j;
      const std::uint64_t digits = memory_.low[bin] + (std::uint64_t{memory_.high[bin]} << 12);
      own[j] = digits << shift(static_cast<std::uint32_t>(bin));
      of_thread += own[j];
    }
    const std::uint64_t running = running_sum_of_warp(of_thread);
    if (lane_ == 31) memory_.bin_sums[warp_] = running;
    __syncthreads();
    std::uint64_t before = running - of_thread, total = 0;
    for (int warp = 0; warp < part_warps; ++warp) {
      if (warp < warp_) before += memory_.bin_sums[warp];
      total += memory_.bin_sums[warp];
    }
    const std::uint64_t reached_at = limit(total);
    if (before < reached_at && reached_at <= before + of_thread) {
      int j = 0;
      while (before + own[j] < reached_at) before += own[j++];
      memory_.found = {static_cast<std::uint32_t>(largest - j), before, total};
    }
    __syncthreads();
    return memory_.found;
  }

  PartMemory& memory_;
  int rank_, warp_, lane_;
  int begin_, count_;  // ids of the part
  int first_, end_;    // indices of the warp
  int exchange_ = 0;
};

/// The launch parameters of a kernel over `rows` rows of `vocab` logits, whose blocks hold
/// `of_token` bytes per logit.
struct RowLaunch {
  RowLaunch(std::int64_t vocabulary, std::size_t rows, int of_token)
      : vocab(static_cast<std::int32_t>(vocabulary)),
        chunk((vocab + 4 * row_parts - 1) / (4 * row_parts) * 4),
        shared(part_overhead + chunk * of_token),
        blocks(static_cast<unsigned>(rows) * row_parts) {}

  template <class Kernel>
  cudaError_t allow(Kernel* kernel) const {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  }

  std::int32_t vocab;
  std::int32_t chunk;
  int shared;  // bytes
  unsigned blocks;
};

}  // namespace troupe::cuda
