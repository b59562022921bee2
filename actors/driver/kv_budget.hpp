#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "actors/api/engine_spec.hpp"
#include "actors/worker/worker_spec.hpp"
#include "runtime/base/available_memory.hpp"

namespace troupe {

/// KV blocks of each replica: those of the spec, or else what max_num_seqs requests of
/// max_model_len tokens can use, within half of `free_bytes` if known. `bytes_per_block` (> 0) is a
/// block's size on all workers, which share that memory. 0 if not even one fits.
std::int64_t choose_kv_cache_blocks(const EngineSpec& spec, std::uint64_t bytes_per_block,
                                    std::optional<std::uint64_t> free_bytes);

/// The same for loaded workers that compute on the CPUs of several nodes: the least of what their
/// nodes have room for. `nodes` has the node of each worker.
std::int64_t choose_host_kv_cache_blocks(const EngineSpec& spec,
                                         std::span<const WorkerReport> workers,
                                         std::span<const std::string> nodes);

/// The same for workers whose devices have memory of their own: within what
/// spec.device_memory_utilization leaves on the fullest device besides later needs
/// (DeviceMemoryReport::later), less one block, which captured passes may need for padding.
std::int64_t choose_device_kv_cache_blocks(const EngineSpec& spec,
                                           std::span<const WorkerReport> workers);

/// Blocks in host memory of each replica, for evicted sequences (none with a draft model, which has
/// its own cache): spec.swap_bytes of each worker, or else, on devices with memory of their own,
/// what max_num_seqs requests of max_model_len tokens need besides `kv_cache_blocks`, within a
/// quarter of the free host memory of each node; 0 if that is not known of a node. `nodes` has the
/// node of each worker.
std::int64_t choose_swap_blocks(const EngineSpec& spec, std::span<const WorkerReport> workers,
                                std::span<const std::string> nodes, std::int64_t kv_cache_blocks);

/// The error for 0 blocks: what uses the memory of the fullest device, and the remedy. At least one
/// worker.
Error no_room_for_blocks(const EngineSpec& spec, std::span<const WorkerReport> workers);

}  // namespace troupe
