#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/bench/faults/answer_book.hpp"
#include "launcher/bench/faults/domain_book.hpp"
#include "launcher/bench/faults/fault_injector.hpp"
#include "launcher/bench/faults/fault_progress.hpp"

namespace troupe {

/// Resident memory of the processes that live as long as the job, in bytes.
struct MemoryReading {
  std::uint64_t driver = 0;
  std::vector<AgentMemory> agents;
};

/// What `launcher bench faults` has found out.
struct FaultFigures {
  std::uint64_t seed = 0;
  double interval_seconds = 0;
  std::vector<FaultKind> kinds;
  std::int64_t planned = 0;
  std::vector<FaultRecord> faults;  ///< in order; the last may not be recovered from
  double seconds = 0;               ///< from the end of the undisturbed run
  std::optional<MemoryReading> memory_before, memory_after;
  std::uint64_t requests = 0;  ///< of a round
  std::uint64_t compared = 0;  ///< answers
  std::uint64_t different = 0;
  std::uint64_t answered_tokens = 0;  ///< of all answers, those of the undisturbed run too
  std::uint64_t sampled_tokens = 0;   ///< that the executors have reported, for these answers
  std::uint64_t unsaved_tokens = 0;   ///< of these, those that nobody had; see EngineRecovery
  /// In the undisturbed run each token of the answers was sampled once, so that the counts tell
  /// whether this is so with faults. It is not with beams, and with requests that fail.
  bool counts_agree = false;
  bool is_complete = false;  ///< all planned faults were made, and all answers have come
  std::vector<DomainRecord> domain_changes;        ///< of an elastic job
  std::vector<std::string> domain_contradictions;  ///< see DomainBook
  std::vector<AnswerDifference> differences;       ///< the first ones

  /// Tokens that executors have reported more than once.
  std::uint64_t sampled_again() const {
    return sampled_tokens - std::min(sampled_tokens, answered_tokens);
  }
  /// Of these, those that had been handed over, and so are never to be sampled again.
  std::uint64_t saved_and_sampled_again() const {
    if (!counts_agree || !is_complete) return 0;
    return sampled_again() - std::min(sampled_again(), unsaved_tokens);
  }
  /// What a job must not do has been found.
  bool failed() const {
    return different > 0 || saved_and_sampled_again() > 0 || !domain_contradictions.empty();
  }
};

}  // namespace troupe
