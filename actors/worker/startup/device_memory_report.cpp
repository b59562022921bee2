#include "actors/worker/startup/device_memory_report.hpp"

#include <fmt/format.h>

namespace troupe {

DeviceMemoryReport device_memory_report(const DeviceMemory& before, const DeviceMemory& after,
                                        std::uint64_t weights, std::uint64_t later) {
  const std::uint64_t own =
      before.free_bytes > after.free_bytes ? before.free_bytes - after.free_bytes : 0;
  return {.total = after.total_bytes,
          .free = after.free_bytes,
          .elsewhere = before.total_bytes - before.free_bytes,
          .weights = weights,
          .buffers = own > weights ? own - weights : 0,
          .later = later};
}

std::string in_gib(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string describe(const DeviceMemoryReport& use) {
  return fmt::format(
      "{}: {} CUDA's own and other processes', {} weights, {} buffers of passes, {} for logits, "
      "sampling and recorded passes; {} free",
      in_gib(use.total), in_gib(use.elsewhere), in_gib(use.weights), in_gib(use.buffers),
      in_gib(use.later), in_gib(use.free));
}

Error with_memory_of_load(Error error, const DeviceMemory& before, std::uint64_t weights,
                          std::int64_t max_batch_tokens) {
  if (error.code != ErrorCode::resource_exhausted || before.total_bytes == 0) return error;
  return fail(
      error.code,
      "{}. Of the device's {}, {} were taken before (CUDA's own and other processes'); this "
      "rank's weights are {}, the rest are buffers of passes. Free the device of other "
      "processes, split the model over more GPUs (parallel.tensor_parallel_size, "
      "parallel.pipeline_parallel_size), or lower engine.max_num_batched_tokens ({})",
      error.message, in_gib(before.total_bytes), in_gib(before.total_bytes - before.free_bytes),
      in_gib(weights), max_batch_tokens);
}

Error with_memory_of_start(Error error, const DeviceMemory& now, std::uint64_t weights,
                           std::uint64_t kv_bytes) {
  if (error.code != ErrorCode::resource_exhausted || now.total_bytes == 0) return error;
  return fail(error.code,
              "{}. Of the device's {}, {} are free; the weights are {}, the KV cache is {}. Lower "
              "engine.gpu_memory_utilization, or engine.kv_cache_blocks if it is set",
              error.message, in_gib(now.total_bytes), in_gib(now.free_bytes), in_gib(weights),
              in_gib(kv_bytes));
}

}  // namespace troupe
