#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "actors/engine/request.hpp"
#include "actors/executor/prepared_request.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "models/text/tokenizer.hpp"

namespace troupe {

/// An answer under way, over the sequences of a request that generate it. Its owner runs them. A
/// plain class.
class Answer {
 public:
  /// Returns the sequences that the scheduler runs for this answer. Called once.
  virtual SequenceGroupSpec begin() = 0;

  struct Step {
    bool ended = false;  ///< nothing more is wanted of the sequence
    bool done = false;   ///< nor of any other: finish() is next
    /// The tokens of the beams that follow (Scheduler::advance); empty if there are none yet.
    std::vector<std::vector<std::int32_t>> beams = {};
  };
  /// Takes what a step brought to a sequence; its end, if it is one, is not `failed`.
  virtual Step take(SequenceUpdate update) = 0;

  /// The Completion. Spends the answer.
  virtual Completion finish() = 0;

  virtual ~Answer() = default;
};

/// An answer of the kind that `request` wants. `tokenizer` outlives it and may be null: then there
/// is no text.
std::unique_ptr<Answer> make_answer(PreparedRequest request, const Tokenizer* tokenizer);

}  // namespace troupe
