#pragma once

#include <cstdint>
#include <vector>

#include "actors/scheduler/scheduling_policy.hpp"
#include "models/kv_policy/kv_policy.hpp"

namespace troupe {

/// How next tokens are guessed (drafted), so that one step may generate several.
struct SpeculationConfig {
  enum class Method : std::uint8_t { none, prompt_lookup, draft_model };
  Method method = Method::none;
  std::int32_t tokens = 3;         ///< the most drafts in a step, 1..16
  std::int32_t longest_match = 3;  ///< for prompt_lookup: the most tokens of a match

  template <class Archive>
  void fields(Archive& archive) {
    archive(method, tokens, longest_match);
  }
};

/// The limits that a scheduler plans within; all numbers are at least 1 unless stated otherwise.
struct SchedulerConfig {
  std::int32_t max_num_seqs = 256;             ///< sequences that hold blocks at one time
  std::int32_t max_num_batched_tokens = 2048;  ///< tokens in a step
  std::int32_t max_model_len = 2048;           ///< prompt and generated tokens of a request
  std::int32_t block_size = 16;                ///< tokens in a block
  std::int32_t kv_cache_blocks = 1024;         ///< the minimum over the ranks
  std::int32_t max_steps_in_flight = 1;        ///< plans made before the first of them is applied
  /// A plan takes at most one in `micro_batches` of the sequences and (with chunked prefill) of the
  /// tokens, so that as many plans can be in flight at once: the stages of a pipeline. Plans beyond
  /// that are made ahead of results.
  std::int32_t micro_batches = 1;
  /// False: no prompt is split; the budget must then hold max_model_len.
  bool chunked_prefill = true;
  bool prefix_caching = false;
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  SpeculationConfig speculation = {};
  /// For each cache group of the model: how many tokens a position sees; 0: all.
  std::vector<std::int32_t> windows = {0};
  /// Blocks in host memory for evicted sequences; 0: they are recomputed.
  std::int32_t swap_blocks = 0;
  /// Which tokens the caches keep. Another one than `full` goes with one cache group without a
  /// window, and neither with prefix_caching nor with swap_blocks nor with speculation.
  KvPolicy kv_policy = {};

  template <class Archive>
  void fields(Archive& archive) {
    archive(max_num_seqs, max_num_batched_tokens, max_model_len, block_size, kv_cache_blocks,
            max_steps_in_flight, micro_batches, chunked_prefill, prefix_caching, policy,
            speculation, windows, swap_blocks, kv_policy);
  }
};

}  // namespace troupe
