#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/sampler/sampling_params.hpp"

namespace troupe {

/// Why a sequence ended.
enum class SequenceEnd : std::uint8_t {
  stop,    ///< a stop token came; it is the last token
  length,  ///< max_tokens are generated (0: the prompt is scored), or max_model_len is reached
  failed,  ///< a worker found non-finite logits
};

/// One step's output for one sequence.
struct SequenceUpdate {
  std::uint64_t request = 0;
  std::int32_t sequence = 0;         ///< within the request
  std::vector<std::int32_t> tokens;  ///< new ones, in order; none after a stop token or the limit
  std::vector<TokenLogprobs> logprobs;  ///< one per new token if asked for
  std::int32_t prompt_begin = 0;        ///< position of the first token of `prompt_logprobs`
  std::vector<TokenLogprobs> prompt_logprobs;
  std::optional<SequenceEnd> end;  ///< set in the last update of a sequence

  template <class Archive>
  void fields(Archive& archive) {
    archive(request, sequence, tokens, logprobs, prompt_begin, prompt_logprobs, end);
  }
};

}  // namespace troupe
