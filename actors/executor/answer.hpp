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

/// An answer under way, over the sequences that generate it. Its owner runs the sequences and gives
/// each a place: their index in the order in which the answer asked for them. A plain class.
class Answer {
 public:
  /// The sequences to begin with; their names are left to the owner.
  virtual std::vector<SequenceSpec> begin() = 0;

  struct Step {
    bool ended = false;              ///< the sequence generates nothing more for this answer
    std::vector<SequenceSpec> next;  ///< further sequences to run
  };
  /// Takes what a step brought to the sequence at `place`; an update's end other than `failed`.
  virtual Step take(std::size_t place, SequenceUpdate update) = 0;

  /// The sequence at `place` once more from its beginning; what it generated is forgotten.
  virtual SequenceSpec again(std::size_t place) = 0;

  /// All sequences asked for have ended: the Completion. Spends the answer.
  virtual Completion finish() = 0;

  virtual ~Answer() = default;
};

/// An answer of the kind that `request` wants. `tokenizer` outlives it and may be null: then there
/// is no text.
std::unique_ptr<Answer> make_answer(PreparedRequest request, const Tokenizer* tokenizer);

}  // namespace troupe
