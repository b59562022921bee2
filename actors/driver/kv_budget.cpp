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

std::int64_t choose_kv_cache_blocks(const EngineSpec& spec, std::uint64_t bytes_per_block,
                                    std::optional<std::uint64_t> free_bytes) {
  if (spec.kv_cache_blocks > 0) return spec.kv_cache_blocks;
  const std::int64_t blocks_per_sequence =
      (spec.max_model_len + spec.block_size - 1) / spec.block_size;
  const std::int64_t useful = blocks_per_sequence * spec.cache_groups * spec.max_num_seqs;
  if (!free_bytes) return useful;
  return std::min(useful, static_cast<std::int64_t>(*free_bytes / 2 / bytes_per_block));
}

}  // namespace troupe
