#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>

#include "actors/api/request.hpp"
#include "actors/executor/prepared_request.hpp"
#include "models/config/model_config.hpp"
#include "models/text/chat_template.hpp"
#include "models/text/tokenizer.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Prepares requests to be run: renders chats by the model's template, tokenises text, and takes
/// sampling fields that the request left open from generation_config.json (as in vLLM) or from
/// neutral defaults. A bad word is taken as it is tokenised at the beginning of a text and, if that
/// begins with another token and is as long, also after a space (as in vLLM). prepare() may be
/// called from any thread.
class RequestPreprocessor {
 public:
  /// Reads config, generation config, tokenizer and chat template from the model's folder. Without
  /// tokenizer.json only token ids are accepted, without a template no chats. `max_model_len`
  /// bounds prompt and answer together. `now`, in seconds since 1970, is the time passed to the
  /// chat template. If the template is unusable, only chats are refused.
  static Result<RequestPreprocessor> load(const std::string& model_path, std::int64_t max_model_len,
                                          std::int64_t now);
  /// The same for a model whose config is read already.
  static Result<RequestPreprocessor> load(const std::string& model_path, ModelConfig config,
                                          std::int64_t max_model_len, std::int64_t now);

  /// Returns the prepared request, or the answer that refuses it (invalid_prompt, invalid_value,
  /// context_length_exceeded).
  std::variant<PreparedRequest, Completion> prepare(Request request) const;

  /// Null without a tokenizer.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  const ModelConfig& config() const { return config_; }
  const GenerationDefaults& defaults() const { return defaults_; }
  /// Why chats are refused although there is a template; null if they are not.
  const Error* template_problem() const { return template_ ? template_->problem() : nullptr; }

 private:
  RequestPreprocessor() = default;
  void add_eos(std::optional<std::int32_t> id);
  Result<std::vector<std::int32_t>> prompt_ids(Request& request) const;
  Result<std::vector<std::int32_t>> tokens_of(Request& request) const;
  /// Cuts a prompt to truncate_prompt_tokens. Errors: more than the context has room for.
  Result<void> truncate(const Request& request, std::vector<std::int32_t>& ids) const;
  Result<std::string> chat_text(const Request& request) const;
  /// Errors: cases that vLLM refuses too, in its words.
  Result<void> check(const Request& request) const;
  Result<SamplingParams> sampling(const Request& request, std::int64_t prompt_tokens) const;
  Result<std::vector<std::vector<std::int32_t>>> bad_words(const Request& request) const;
  AnswerForm form(Request& request, std::span<const std::int32_t> prompt) const;

  ModelConfig config_;
  GenerationDefaults defaults_;
  std::vector<std::int32_t> eos_token_ids_;  ///< sorted: the model's and the tokenizer's
  std::optional<std::int32_t> own_end_;      ///< the tokenizer's EOS, else that of config.json
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::int64_t max_model_len_ = 0;
  std::int64_t now_ = 0;
};

}  // namespace troupe
