#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "actors/driver/engine_spec.hpp"
#include "actors/worker/worker_spec.hpp"
#include "runtime/base/available_memory.hpp"

namespace troupe {

/// KV blocks of each replica: those of the spec, or else what max_num_seqs requests of
/// max_model_len tokens can use, within half of `free_bytes` if they are known. `bytes_per_block`
/// (> 0) is what a block takes on all workers, which share that memory. 0 if there is no room for
/// one.
std::int64_t choose_kv_cache_blocks(const EngineSpec& spec, std::uint64_t bytes_per_block,
                                    std::optional<std::uint64_t> free_bytes);

/// The same for workers whose devices have memory of their own: within what
/// spec.device_memory_utilization leaves on the fullest of them besides what they take later
/// (DeviceUse::later), one block less, which passes that are recorded may want for themselves.
std::int64_t choose_device_kv_cache_blocks(const EngineSpec& spec,
                                           std::span<const WorkerReport> workers);

/// Why those are 0: what has the memory of the fullest device, and what to do. At least one worker.
Error no_room_for_blocks(const EngineSpec& spec, std::span<const WorkerReport> workers);

}  // namespace troupe
