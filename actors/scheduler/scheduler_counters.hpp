#pragma once

#include <algorithm>
#include <cstdint>

namespace troupe {

/// What a scheduler has done since it was created.
struct SchedulerCounters {
  std::uint64_t prompt_tokens = 0;      ///< of prompts in plans, again after a preemption
  std::uint64_t recomputed_tokens = 0;  ///< those that had been planned before
  std::uint64_t looked_up_tokens = 0;   ///< of prompts looked up in the prefix cache, each once
  std::uint64_t prefix_tokens = 0;      ///< found in the cache at requests' first admission
  std::uint64_t preemptions = 0;        ///< sequences whose blocks were taken, to be recomputed
  std::uint64_t max_preemptions = 0;    ///< the most for one sequence
  std::uint64_t drafts = 0;             ///< guessed tokens in plans
  std::uint64_t accepted_drafts = 0;
  std::uint64_t swaps = 0;  ///< sequences whose KV went to host memory, each time

  void add(const SchedulerCounters& other) {
    prompt_tokens += other.prompt_tokens;
    recomputed_tokens += other.recomputed_tokens;
    looked_up_tokens += other.looked_up_tokens;
    prefix_tokens += other.prefix_tokens;
    preemptions += other.preemptions;
    max_preemptions = std::max(max_preemptions, other.max_preemptions);
    drafts += other.drafts;
    accepted_drafts += other.accepted_drafts;
    swaps += other.swaps;
  }

  template <class Archive>
  void fields(Archive& archive) {
    archive(prompt_tokens, recomputed_tokens, looked_up_tokens, prefix_tokens, preemptions,
            max_preemptions, drafts, accepted_drafts, swaps);
  }
};

}  // namespace troupe
