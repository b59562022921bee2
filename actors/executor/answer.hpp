#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "actors/api/request.hpp"
#include "actors/executor/prepared_request.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "models/text/tokenizer.hpp"

namespace troupe {

/// The answer to a request while its sequences generate it. Its owner runs the sequences. A plain
/// class.
class Answer {
 public:
  /// Returns the sequences that the scheduler runs for this answer. Called once.
  virtual SequenceGroupSpec begin() = 0;

  struct Step {
    bool ended = false;  ///< the sequence is no longer needed
    bool done = false;   ///< no sequence is needed any more: call finish()
    /// The tokens of the next beams (Scheduler::advance); empty if there are none yet.
    std::vector<std::vector<std::int32_t>> beams = {};
  };
  /// Takes a step's update of a sequence; its end, if it is one, is not `failed`.
  virtual Step take(SequenceUpdate update) = 0;

  /// Returns the Completion; call once.
  virtual Completion finish() = 0;

  virtual ~Answer() = default;
};

/// Makes the kind of answer that `request` wants. `tokenizer` outlives it and may be null: then
/// there is no text.
std::unique_ptr<Answer> make_answer(PreparedRequest request, const Tokenizer* tokenizer);

}  // namespace troupe
