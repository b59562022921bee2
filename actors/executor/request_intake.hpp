#pragma once

#include <optional>
#include <string>
#include <variant>

#include "actors/engine/request.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "models/config/model_config.hpp"
#include "models/text/chat_template.hpp"
#include "models/text/tokenizer.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Turns requests into what the scheduler takes: chats are rendered by the model's template, text
/// is tokenised, sampling fields that the request left open come from generation_config.json (as in
/// vLLM) or are neutral. prepare() may be called from any thread.
class RequestIntake {
 public:
  /// Reads config, generation config, tokenizer and chat template of the model's folder. A model
  /// without tokenizer.json takes token ids only; one without a template takes no chats.
  /// `max_model_len` bounds prompt and answer together.
  static Result<RequestIntake> load(const std::string& model_path, std::int64_t max_model_len);

  /// The sequence, or the answer that refuses the request (invalid_prompt, invalid_value,
  /// context_length_exceeded).
  std::variant<SequenceSpec, Completion> prepare(Request request) const;

  /// Null without a tokenizer.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  const ModelConfig& config() const { return config_; }
  const GenerationDefaults& defaults() const { return defaults_; }

 private:
  RequestIntake() = default;
  Result<std::vector<std::int32_t>> prompt_ids(Request& request) const;
  SamplingParams sampling(const Request& request, std::int64_t prompt_tokens) const;

  ModelConfig config_;
  GenerationDefaults defaults_;
  std::vector<std::int32_t> eos_token_ids_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::int64_t max_model_len_ = 0;
};

/// The answer to a request that cannot be run.
Completion refuse(std::uint64_t id, std::string code, std::string message);

}  // namespace troupe
