#pragma once

#include <cstdint>
#include <vector>

#include "actors/engine/request.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "models/text/tokenizer.hpp"

namespace troupe {

/// An answer under way: gathers what the steps bring to one request and makes its Completion.
class Answer {
 public:
  explicit Answer(const SequenceSpec& spec);

  /// Takes an update's tokens and scores in; its `end` is not looked at.
  void add(SequenceUpdate update);

  /// The Completion. `tokenizer` may be null: then there is no text. Spends the answer.
  Completion finish(SequenceEnd end, const Tokenizer* tokenizer);

  bool begun() const { return !tokens_.empty(); }

 private:
  std::uint64_t request_;
  std::vector<std::int32_t> prompt_;
  bool echo_;
  std::vector<std::int32_t> tokens_;
  std::vector<TokenLogprobs> logprobs_;
  std::vector<TokenLogprobs> prompt_logprobs_;  ///< [prompt - 1], by position from 1
};

}  // namespace troupe
