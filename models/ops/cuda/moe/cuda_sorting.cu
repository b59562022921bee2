// Sorting a pass's assignments by expert.
#include <algorithm>
#include <optional>

#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/moe/cuda_moe_ops.hpp"
#include "models/ops/cuda/moe/cuda_sorting.hpp"
#include "models/ops/cuda/moe/sort_assignments.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr std::int64_t warp = 32;
constexpr std::int64_t max_shared = 48 << 10;  // bytes that every device has
constexpr std::int64_t min_warps = 4;          // they also share the work for each expert
constexpr std::int64_t min_tokens = 64;        // per warp, before more blocks are used
/// The blocks that a cluster may have on every Hopper; sorting on other GPUs takes one block.
std::int64_t max_blocks() { return hopper_kernels_run() ? 8 : 1; }

__global__ void __launch_bounds__(sort_threads) sort_all(Sorting sorting, std::int64_t rows) {
  begin_early_kernel();
  extern __shared__ std::int32_t places[];
  sort_in_cluster(sorting, AllRows{rows}, places);
}

__global__ void __launch_bounds__(batch_warps* warp)
    sort_batch(Sorting sorting, int tokens, int turns) {
  begin_early_kernel();
  extern __shared__ std::uint32_t memory[];
  sort_batch_in_cluster(sorting, tokens, turns, memory);
}

__global__ void __launch_bounds__(sort_threads)
    sort_filled(Sorting sorting, const std::int32_t* received_counts, int parts,
                std::int64_t each) {
  begin_early_kernel();
  extern __shared__ std::int32_t places[];
  sort_in_cluster(sorting, FilledRows(received_counts, parts, each), places);
}

__global__ void add_counts(const std::int32_t* offsets, int experts, std::int64_t* counts) {
  begin_early_kernel();
  const int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e < experts) counts[e] += offsets[e + 1] - offsets[e];
}

/// As many warps as `tokens` justify: in one block as far as shared memory allows, then in more.
Grid sorting_grid(std::int64_t tokens, std::int64_t experts) {
  const std::int64_t room = max_shared / static_cast<std::int64_t>(sizeof(std::int32_t));
  const std::int64_t most =
      std::clamp<std::int64_t>((room - 2 * experts - 1) / (2 * experts), 1, sort_threads / warp);
  const std::int64_t warps =
      std::clamp<std::int64_t>((tokens + warp - 1) / warp, std::min(min_warps, most), most);
  const std::int64_t blocks =
      std::clamp<std::int64_t>(tokens / (warps * min_tokens), 1, max_blocks());
  const std::int64_t integers = (2 * warps + 2) * experts + 1;
  return {dim3(static_cast<unsigned>(blocks)), static_cast<unsigned>(warps * warp),
          static_cast<std::size_t>(integers) * sizeof(std::int32_t)};
}

/// Turns of each warp in sort_batch.
std::int64_t batch_turns(std::int64_t tokens) {
  return blocks_of(tokens, batch_warps * max_blocks());
}

/// The grid of sort_batch; none for other GPUs, more tokens, or too many experts for its memory.
std::optional<Grid> batch_grid(std::int64_t tokens, std::int64_t top_k, std::int64_t experts) {
  const std::int64_t turns = batch_turns(tokens);
  const std::int64_t bytes =
      ((turns + 3) * experts + 1) * static_cast<std::int64_t>(sizeof(std::int32_t));
  if (!hopper_kernels_run() || tokens < 1 || turns > max_turns || top_k > max_assignment_lanes ||
      bytes > max_shared) {
    return std::nullopt;
  }
  return Grid{dim3(blocks_of(tokens, batch_warps * turns)),
              static_cast<unsigned>(batch_warps * warp), static_cast<std::size_t>(bytes)};
}

Sorting sorting_of(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) {
  return {.ids = ids.as<std::int32_t>(),
          .top_k = static_cast<int>(ids[1]),
          .first_expert = first_expert,
          .experts = static_cast<int>(batch.offsets.elements() - 1),
          .offsets = batch.offsets.as<std::int32_t>(),
          .source = batch.source.as<std::int32_t>(),
          .counts = nullptr};
}

}  // namespace
}  // namespace cuda

using namespace cuda;

cudaError_t sort_assignments(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch,
                             const Tensor& counts, cudaStream_t stream) {
  Sorting sorting = sorting_of(ids, first_expert, batch);
  sorting.counts = counts.empty() ? nullptr : counts.as<std::int64_t>();
  const std::int64_t tokens = ids[0];
  if (const auto grid = batch_grid(tokens, ids[1], sorting.experts)) {
    return launch_cluster_early(sort_batch, *grid, stream, sorting, tokens, batch_turns(tokens));
  }
  return launch_cluster_early(sort_all, sorting_grid(tokens, sorting.experts), stream, sorting,
                              tokens);
}

void CudaMoeOps::do_permute(const Tensor& ids, std::int64_t first_expert,
                            const ExpertBatch& batch) {
  check(sort_assignments(ids, first_expert, batch, {}, stream()), "permute");
}

void CudaMoeOps::do_permute_received(const Tensor& ids, const Tensor& received_counts,
                                     std::int64_t first_expert, const ExpertBatch& batch,
                                     const Tensor& counts) {
  Sorting sorting = sorting_of(ids, first_expert, batch);
  sorting.counts = counts.as<std::int64_t>();
  const std::int64_t parts = received_counts.elements();
  if (parts > FilledRows::max_parts) {
    check(cudaErrorInvalidValue, "permute_received");
    return;
  }
  // Only the device knows how many rows count.
  const std::int64_t likely = batch.expected_rows > 0 ? batch.expected_rows : ids[0];
  check(launch_cluster_early(sort_filled, sorting_grid(likely, sorting.experts), stream(), sorting,
                             received_counts.as<std::int32_t>(), static_cast<int>(parts),
                             ids[0] / parts),
        "permute_received");
}

void CudaMoeOps::do_count_rows(const ExpertBatch& batch, const Tensor& counts) {
  const int experts = static_cast<int>(counts.elements());
  constexpr unsigned threads = 256;
  check(launch_early(add_counts, {dim3(blocks_of(experts, threads)), threads}, stream(),
                     batch.offsets.as<std::int32_t>(), experts, counts.as<std::int64_t>()),
        "count_rows");
}

}  // namespace troupe
