#include "actors/executor/request_intake.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

namespace troupe {

Completion refuse(std::uint64_t id, std::string code, std::string message) {
  Completion completion;
  completion.id = id;
  completion.finish_reason = FinishReason::error;
  completion.error_code = std::move(code);
  completion.error = std::move(message);
  return completion;
}

Result<RequestIntake> RequestIntake::load(const std::string& model_path,
                                          std::int64_t max_model_len) {
  RequestIntake intake;
  TROUPE_TRY(intake.config_, ModelConfig::load(model_path));
  TROUPE_TRY(intake.defaults_, GenerationDefaults::load(model_path));
  intake.eos_token_ids_ = eos_token_ids(intake.config_, intake.defaults_);
  intake.max_model_len_ = max_model_len;
  if (std::filesystem::exists(std::filesystem::path(model_path) / "tokenizer.json")) {
    TROUPE_TRY(intake.tokenizer_, Tokenizer::load(model_path));
  }
  auto chat_template = ChatTemplate::load(model_path);
  if (chat_template.ok()) {
    intake.template_ = *std::move(chat_template);
  } else if (chat_template.error().code != ErrorCode::not_found) {
    return std::move(chat_template).error();
  }
  return intake;
}

std::variant<SequenceSpec, Completion> RequestIntake::prepare(Request request) const {
  Result<std::vector<std::int32_t>> ids = prompt_ids(request);
  if (!ids.ok()) return refuse(request.id, "invalid_prompt", std::move(ids).error().message);
  const auto prompt_tokens = static_cast<std::int64_t>(ids->size());
  if (ids->empty()) {
    return refuse(request.id, "invalid_prompt", "the prompt is empty: it has no tokens");
  }
  if (request.stop_token_ids.size() > max_stop_token_ids) {
    return refuse(request.id, "invalid_value",
                  fmt::format("stop_token_ids has {} ids, at most {} are taken",
                              request.stop_token_ids.size(), max_stop_token_ids));
  }
  const std::int64_t answer_tokens = request.max_tokens.value_or(1);
  if (answer_tokens > max_model_len_ - prompt_tokens) {
    return refuse(request.id, "context_length_exceeded",
                  fmt::format("the prompt has {} tokens and {} are asked for: together more than "
                              "the context of {} tokens",
                              prompt_tokens, answer_tokens, max_model_len_));
  }
  return SequenceSpec{request.id, *std::move(ids), sampling(request, prompt_tokens)};
}

Result<std::vector<std::int32_t>> RequestIntake::prompt_ids(Request& request) const {
  if (request.kind == PromptKind::token_ids) {
    for (const std::int32_t id : request.prompt_ids) {
      if (id < 0 || id >= config_.vocab_size) {
        return fail(ErrorCode::invalid_argument, "token id {} is not in the vocabulary of {}", id,
                    config_.vocab_size);
      }
    }
    return std::move(request.prompt_ids);
  }
  if (!tokenizer_) {
    return fail(ErrorCode::unsupported,
                "the model has no tokenizer.json: give the prompt as token ids");
  }
  if (request.kind == PromptKind::text) return tokenizer_->encode(request.prompt, true);
  if (!template_) {
    return fail(ErrorCode::unsupported, "the model has no chat template: use /v1/completions");
  }
  const auto messages = nlohmann::ordered_json::parse(request.prompt, nullptr, false);
  if (messages.is_discarded()) {
    return fail(ErrorCode::invalid_argument, "the messages are not JSON");
  }
  TROUPE_TRY(const std::string text, template_->render(messages, true, nlohmann::ordered_json()));
  return tokenizer_->encode(text, false);
}

SamplingParams RequestIntake::sampling(const Request& request, std::int64_t prompt_tokens) const {
  SamplingParams params;
  const auto pick = [](const auto& own, const auto& model, auto& value) {
    using Value = std::decay_t<decltype(value)>;
    if (own) {
      value = *own;
    } else if (model) {
      value = static_cast<Value>(*model);
    }
  };
  pick(request.temperature, defaults_.temperature, params.temperature);
  pick(request.top_k, defaults_.top_k, params.top_k);
  pick(request.top_p, defaults_.top_p, params.top_p);
  pick(request.min_p, defaults_.min_p, params.min_p);
  params.top_k = std::max(params.top_k, 0);
  params.seed = request.seed;
  params.max_tokens =
      static_cast<std::int32_t>(request.max_tokens.value_or(max_model_len_ - prompt_tokens));
  params.ignore_eos = request.ignore_eos;
  params.stop_token_ids = request.stop_token_ids;
  if (!request.ignore_eos) {
    params.stop_token_ids.insert(params.stop_token_ids.end(), eos_token_ids_.begin(),
                                 eos_token_ids_.end());
  }
  params.logprobs = request.logprobs;
  params.prompt_logprobs = request.prompt_logprobs;
  return params;
}

}  // namespace troupe
