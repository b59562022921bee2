#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/api/request.hpp"
#include "models/sampler/sampling_params.hpp"
#include "models/text/detokenizer.hpp"

namespace troupe {

struct BeamParams {
  std::int32_t width = 1;
  float length_penalty = 1.0F;
};

/// How a request's answer is built from the output of its sequences.
struct AnswerForm {
  std::int32_t n = 1;        ///< choices in the answer
  std::int32_t best_of = 1;  ///< choices generated; the likeliest n are returned
  std::optional<BeamParams> beam;
  std::vector<std::string> stop;  ///< needs a tokenizer
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  std::int32_t logprobs = -1;           ///< see Request
  std::vector<std::int32_t> eos_ids;    ///< of the model; empty under ignore_eos
  std::optional<std::int32_t> own_end;  ///< the one of eos_ids that is not reported as stop reason
  /// A detokenizer that has read the prompt, which an answer's text follows; none without a
  /// tokenizer.
  std::optional<Detokenizer> detokenizer;
  std::optional<std::string> echo;     ///< the prompt's text, if it is to be returned
  std::size_t tokens_before_text = 0;  ///< leading prompt tokens that are not part of its text
};

/// A tokenised request with resolved sampling parameters.
struct PreparedRequest {
  std::uint64_t id = 0;  ///< the caller's
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;  ///< for the first choice
  std::int32_t priority = 0;
  std::optional<std::int64_t> deadline_us;  ///< on the clock of the step loop
  AnswerForm form;
};

/// Makes the answer to a request that cannot be run.
Completion refuse(std::uint64_t id, std::string code, std::string message);

}  // namespace troupe
