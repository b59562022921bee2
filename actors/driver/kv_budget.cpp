#include "actors/driver/kv_budget.hpp"

#include <algorithm>
#include <fstream>
#include <string>

namespace troupe {

std::optional<std::uint64_t> available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::uint64_t kib = 0;
  while (file >> key >> kib >> unit) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

namespace {

/// What max_num_seqs requests of max_model_len tokens can use.
std::int64_t useful_blocks(const EngineSpec& spec) {
  const std::int64_t blocks_per_sequence =
      (spec.max_model_len + spec.block_size - 1) / spec.block_size;
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

std::int64_t choose_device_kv_cache_blocks(const EngineSpec& spec,
                                           std::span<const WorkerReport> workers) {
  if (spec.kv_cache_blocks > 0) return spec.kv_cache_blocks;
  std::int64_t blocks = useful_blocks(spec);
  for (const WorkerReport& worker : workers) {
    const double kept_free =
        (1.0 - spec.device_memory_utilization) * static_cast<double>(worker.device_total_bytes);
    const double room = static_cast<double>(worker.device_free_bytes) - kept_free;
    const double fit = room / static_cast<double>(worker.kv_bytes_per_block);
    blocks = std::min(blocks, static_cast<std::int64_t>(std::max(fit, 0.0)));
  }
  return blocks;
}

}  // namespace troupe
