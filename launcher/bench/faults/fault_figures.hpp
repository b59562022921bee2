#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/bench/faults/answer_book.hpp"
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
  bool is_complete = false;           ///< all planned faults were made, and all answers have come
  std::vector<AnswerDifference> differences;  ///< the first ones
};

}  // namespace troupe
