#include "launcher/job/memory_check.hpp"

#include <algorithm>
#include <cmath>

#include "actors/driver/kv_budget.hpp"
#include "launcher/job/mesh_table.hpp"
#include "runtime/base/format_bytes.hpp"

namespace troupe {
namespace {

/// CUDA's context, its libraries' workspaces and NCCL's buffers: 0.7 GiB on one H200, more in
/// groups.
constexpr double gpu_overhead_bytes = 1.5 * (1 << 30);

/// Approximate size of a pass's buffers: rows of the residual stream, of queries, keys and values
/// and of the MLP's inner size, a row of logits in fp32 for each sequence, the tables of rotary
/// embeddings, and what codes of weights become bf16 in.
double pass_bytes(const JobPlan& plan) {
  const ModelConfig& model = plan.model;
  const EngineSpec& engine = plan.engine;
  const auto element = static_cast<double>(size_of(engine.dtype));
  const double tensor = engine.tensor_parallel_size;
  const auto inner =
      static_cast<double>(model.moe ? model.moe->intermediate_size : model.intermediate_size);
  const double row = 4.0 * static_cast<double>(model.hidden_size) + 2.0 * inner / tensor;
  const double logits = 4.0 * static_cast<double>(model.vocab_size) / tensor;
  const auto rope = static_cast<double>(plan.ranks.front().rope_bytes);  // all ranks have the same
  const auto decoded = static_cast<double>(
      std::ranges::max(plan.ranks, {}, &RankFootprint::decoded_bytes).decoded_bytes);
  return engine.max_num_batched_tokens * row * element + engine.max_num_seqs * logits + rope +
         decoded;
}

/// A usual tensor size that divides `weights` into parts that fit, if there is one.
std::string more_gpus(const JobPlan& plan, double weights, double room) {
  const double times = std::ceil(weights / std::max(room, 1.0));
  std::int32_t size = plan.engine.tensor_parallel_size;
  while (size < times * plan.engine.tensor_parallel_size && size < 8) size *= 2;
  return size > plan.engine.tensor_parallel_size
             ? fmt::format(
                   "split the model over more of them (parallel.tensor_parallel_size: {}, "
                   "or parallel.pipeline_parallel_size)",
                   size)
             : std::string("split the model over more of them (parallel.pipeline_parallel_size)");
}

std::int64_t blocks_within(double bytes, double bytes_per_block) {
  return bytes_per_block > 0 ? static_cast<std::int64_t>(std::max(0.0, bytes) / bytes_per_block)
                             : 0;
}

}  // namespace

void judge_host_memory(JobPlan& plan, std::optional<std::uint64_t> free_bytes) {
  std::uint64_t weights = 0;
  std::uint64_t held = 0;  // weights, and tables of rotary embeddings
  std::uint64_t bytes_per_block = 0;
  for (const RankFootprint& rank : plan.ranks) {
    weights += rank.weight_bytes;
    held += rank.weight_bytes + rank.rope_bytes;
    bytes_per_block += rank.kv_bytes_per_block;
  }
  std::optional<std::uint64_t> left;
  if (free_bytes) left = *free_bytes > held ? *free_bytes - held : 0;
  plan.kv_blocks = choose_kv_cache_blocks(plan.engine, bytes_per_block, left);
  if (!left) return;
  if (*left == 0) {
    plan.warnings.push_back(
        fmt::format("the weights of all workers are {}, but {} of memory are free",
                    format_bytes(weights), format_bytes(*free_bytes)));
  }
  const double asked = static_cast<double>(plan.kv_blocks) * static_cast<double>(bytes_per_block);
  if (plan.engine.kv_cache_blocks == 0 || asked <= static_cast<double>(*left)) return;
  plan.problems.push_back(fmt::format(
      "engine.kv_cache_blocks: {} blocks of all workers are {}, but beside {} of weights {} of "
      "memory are free: give at most {}, or leave it at auto",
      plan.kv_blocks, format_bytes(static_cast<std::uint64_t>(std::min(asked, 1.8e19))),
      format_bytes(weights), format_bytes(*left), *left / bytes_per_block));
}

void judge_gpu_memory(JobPlan& plan, std::uint64_t memory_bytes) {
  double weights = 0;
  double bytes_per_block = 0;
  for (const RankFootprint& rank : plan.ranks) {
    weights = std::max(weights, static_cast<double>(rank.weight_bytes));
    bytes_per_block = std::max(bytes_per_block, static_cast<double>(rank.kv_bytes_per_block));
  }
  plan.kv_blocks = choose_kv_cache_blocks(plan.engine, 1, std::nullopt);
  if (memory_bytes == 0) return;
  const auto memory = static_cast<double>(memory_bytes);
  const double usable =
      memory * (plan.engine.kv_cache_blocks > 0 ? 1.0 : plan.engine.device_memory_utilization);
  const double room = usable - weights - pass_bytes(plan) - gpu_overhead_bytes;
  const std::int64_t fitting = blocks_within(room, bytes_per_block);
  const auto bytes = [](double value) { return format_bytes(static_cast<std::uint64_t>(value)); };
  if (fitting < 1) {
    plan.problems.push_back(fmt::format(
        "the weights of a worker are {} and the buffers of its passes about {}, but a GPU has {}, "
        "of which {:.0f} % may be taken (engine.gpu_memory_utilization): {}, or lower "
        "engine.max_num_batched_tokens ({})",
        bytes(weights), bytes(pass_bytes(plan) + gpu_overhead_bytes), bytes(memory),
        100 * plan.engine.device_memory_utilization,
        more_gpus(plan, weights, usable - pass_bytes(plan) - gpu_overhead_bytes),
        plan.engine.max_num_batched_tokens));
  } else if (plan.engine.kv_cache_blocks > fitting) {
    plan.problems.push_back(fmt::format(
        "engine.kv_cache_blocks: {} blocks are {} on a worker, but beside {} of weights and the "
        "buffers of passes about {} of a GPU's {} are left: give at most {}, or leave it at auto",
        plan.engine.kv_cache_blocks,
        bytes(static_cast<double>(plan.engine.kv_cache_blocks) * bytes_per_block), bytes(weights),
        bytes(room), bytes(memory), fitting));
  }
  plan.kv_blocks = plan.engine.kv_cache_blocks > 0 ? plan.engine.kv_cache_blocks
                                                   : std::min(plan.kv_blocks, fitting);
}

}  // namespace troupe
