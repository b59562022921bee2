#include "actors/executor/answer.hpp"

#include <utility>

#include "actors/executor/beam_answer.hpp"
#include "actors/executor/sampled_answer.hpp"

namespace troupe {

std::unique_ptr<Answer> make_answer(PreparedRequest request, const Tokenizer* tokenizer) {
  if (request.form.beam) return std::make_unique<BeamAnswer>(std::move(request), tokenizer);
  return std::make_unique<SampledAnswer>(std::move(request), tokenizer);
}

Completion refuse(std::uint64_t id, std::string code, std::string message) {
  Completion completion;
  completion.id = id;
  completion.error_code = std::move(code);
  completion.error = std::move(message);
  return completion;
}

}  // namespace troupe
