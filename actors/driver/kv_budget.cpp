#include "actors/driver/kv_budget.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

namespace troupe {

namespace {

/// What the workers of one node need and have in host memory.
struct NodeMemory {
  std::uint64_t bytes_per_block = 0;  ///< on all its workers
  std::optional<std::uint64_t> free_bytes;
};

/// By node; `nodes` has the node of each worker.
std::map<std::string_view, NodeMemory> memory_of_nodes(std::span<const WorkerReport> workers,
                                                       std::span<const std::string> nodes) {
  std::map<std::string_view, NodeMemory> of_nodes;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    NodeMemory& node = of_nodes[nodes[i]];
    node.bytes_per_block += workers[i].kv_bytes_per_block;
    const auto free = workers[i].free_host_bytes;  // the last to load has seen the least
    if (free) node.free_bytes = std::min(*free, node.free_bytes.value_or(*free));
  }
  return of_nodes;
}

/// Bytes of a device that the KV cache may take; below 0 if too much is already in use.
double room_for_blocks(const EngineSpec& spec, const DeviceMemoryReport& device) {
  const double kept_free =
      (1.0 - spec.device_memory_utilization) * static_cast<double>(device.total);
  return static_cast<double>(device.free) - static_cast<double>(device.later) - kept_free;
}

/// The most blocks that max_num_seqs requests of max_model_len tokens can use.
std::int64_t useful_blocks(const EngineSpec& spec) {
  const std::int64_t blocks_per_sequence =
      (spec.kv_policy.most_entries(spec.max_model_len, spec.max_model_len) + spec.block_size - 1) /
      spec.block_size;
  return blocks_per_sequence * spec.cache_groups * spec.max_num_seqs;
}

}  // namespace

std::int64_t choose_kv_cache_blocks(const EngineSpec& spec, std::uint64_t bytes_per_block,
                                    std::optional<std::uint64_t> free_bytes) {
  if (spec.kv_cache_blocks > 0) return spec.kv_cache_blocks;
  const std::int64_t useful = useful_blocks(spec);
  if (!free_bytes) return useful;
  return std::min(useful, static_cast<std::int64_t>(*free_bytes / 2 / bytes_per_block));
}

std::int64_t choose_host_kv_cache_blocks(const EngineSpec& spec,
                                         std::span<const WorkerReport> workers,
                                         std::span<const std::string> nodes) {
  std::int64_t blocks = std::numeric_limits<std::int64_t>::max();
  for (const auto& [name, node] : memory_of_nodes(workers, nodes)) {
    blocks = std::min(blocks, choose_kv_cache_blocks(spec, node.bytes_per_block, node.free_bytes));
  }
  return blocks;
}

std::int64_t choose_device_kv_cache_blocks(const EngineSpec& spec,
                                           std::span<const WorkerReport> workers) {
  if (spec.kv_cache_blocks > 0) return spec.kv_cache_blocks;
  std::int64_t blocks = useful_blocks(spec);
  for (const WorkerReport& worker : workers) {
    const double fit =
        room_for_blocks(spec, worker.device) / static_cast<double>(worker.kv_bytes_per_block);
    blocks = std::min(blocks, static_cast<std::int64_t>(std::max(fit, 0.0)) - 1);
  }
  return std::max<std::int64_t>(blocks, 0);
}

std::int64_t choose_swap_blocks(const EngineSpec& spec, std::span<const WorkerReport> workers,
                                std::span<const std::string> nodes, std::int64_t kv_cache_blocks) {
  if (spec.speculation.method == SpeculationConfig::Method::draft_model) return 0;
  if (!spec.kv_policy.is_full()) return 0;
  std::uint64_t most = 1;
  for (const WorkerReport& worker : workers) most = std::max(most, worker.kv_bytes_per_block);
  constexpr std::uint64_t max_blocks = 1 << 30;
  if (spec.swap_bytes) {
    return static_cast<std::int64_t>(std::min(*spec.swap_bytes / most, max_blocks));
  }
  if (spec.device == DeviceKind::cpu) return 0;
  std::uint64_t fit = max_blocks;
  for (const auto& [name, node] : memory_of_nodes(workers, nodes)) {
    if (!node.free_bytes || node.bytes_per_block == 0) return 0;
    fit = std::min(fit, *node.free_bytes / 4 / node.bytes_per_block);
  }
  return std::clamp<std::int64_t>(useful_blocks(spec) - kv_cache_blocks, 0,
                                  static_cast<std::int64_t>(fit));
}

Error no_room_for_blocks(const EngineSpec& spec, std::span<const WorkerReport> workers) {
  const auto fullest = std::ranges::min_element(workers, {}, [&](const WorkerReport& worker) {
    return room_for_blocks(spec, worker.device);
  });
  return fail(ErrorCode::resource_exhausted,
              "there is no device memory for a single KV block of {} tokens ({} bytes). Of {} "
              "(engine.gpu_memory_utilization lets {:.0f} % be taken). Free the device of other "
              "processes, raise engine.gpu_memory_utilization, lower engine.max_num_batched_tokens "
              "({}) or engine.max_num_seqs ({}), or split the model over more GPUs "
              "(parallel.tensor_parallel_size, parallel.pipeline_parallel_size)",
              spec.block_size, fullest->kv_bytes_per_block, describe(fullest->device),
              spec.device_memory_utilization * 100, spec.max_num_batched_tokens, spec.max_num_seqs);
}

}  // namespace troupe
