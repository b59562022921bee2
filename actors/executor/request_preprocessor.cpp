#include "actors/executor/request_preprocessor.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "actors/executor/answer_limits.hpp"
#include "models/families/family.hpp"

namespace troupe {

namespace {

/// The number of values that a plan carries for these parameters.
std::size_t numbers_of(const SamplingParams& params) {
  std::size_t sum =
      params.stop_token_ids.size() + 2 * params.logit_bias.size() + params.allowed_token_ids.size();
  for (const auto& word : params.bad_words) sum += word.size() + 1;
  return sum;
}

}  // namespace

Result<RequestPreprocessor> RequestPreprocessor::load(const std::string& model_path,
                                                      std::int64_t max_model_len,
                                                      std::int64_t now) {
  TROUPE_TRY(ModelConfig config, load_model_config(model_path));
  return load(model_path, std::move(config), max_model_len, now);
}

Result<RequestPreprocessor> RequestPreprocessor::load(const std::string& model_path,
                                                      ModelConfig config,
                                                      std::int64_t max_model_len,
                                                      std::int64_t now) {
  RequestPreprocessor preprocessor;
  preprocessor.config_ = std::move(config);
  TROUPE_TRY(preprocessor.defaults_, GenerationDefaults::load(model_path));
  preprocessor.eos_token_ids_ = eos_token_ids(preprocessor.config_, preprocessor.defaults_);
  preprocessor.max_model_len_ = max_model_len;
  preprocessor.now_ = now;
  if (std::filesystem::exists(std::filesystem::path(model_path) / "tokenizer.json")) {
    TROUPE_TRY(preprocessor.tokenizer_, Tokenizer::load(model_path));
    preprocessor.own_end_ = preprocessor.tokenizer_->eos_id();
    preprocessor.add_eos(preprocessor.own_end_);
  }
  if (!preprocessor.own_end_ && !preprocessor.config_.eos_token_ids.empty()) {
    preprocessor.own_end_ = preprocessor.config_.eos_token_ids.front();
  }
  auto chat_template = ChatTemplate::load(model_path);
  if (chat_template.ok()) {
    preprocessor.template_ = *std::move(chat_template);
  } else if (chat_template.error().code != ErrorCode::not_found) {
    return std::move(chat_template).error();
  }
  return preprocessor;
}

void RequestPreprocessor::add_eos(std::optional<std::int32_t> id) {
  // A tokenizer's EOS may be outside the model's vocabulary.
  if (!id || *id >= config_.vocab_size) return;
  const auto place = std::ranges::lower_bound(eos_token_ids_, *id);
  if (place == eos_token_ids_.end() || *place != *id) eos_token_ids_.insert(place, *id);
}

std::variant<PreparedRequest, Completion> RequestPreprocessor::prepare(Request request) const {
  Result<std::vector<std::int32_t>> ids = prompt_ids(request);
  if (!ids.ok()) return refuse(request.id, "invalid_prompt", std::move(ids).error().message);
  const auto prompt_tokens = static_cast<std::int64_t>(ids->size());
  if (ids->empty()) {
    return refuse(request.id, "invalid_prompt", "the prompt is empty: it has no tokens");
  }
  if (auto checked = check(request); !checked.ok()) {
    return refuse(request.id, "invalid_value", std::move(checked).error().message);
  }
  const std::int64_t answer_tokens = request.max_tokens.value_or(1);
  if (answer_tokens > max_model_len_ - prompt_tokens) {
    return refuse(request.id, "context_length_exceeded",
                  fmt::format("the prompt has {} tokens and {} are asked for: together more than "
                              "the context of {} tokens",
                              prompt_tokens, answer_tokens, max_model_len_));
  }
  Result<SamplingParams> params = sampling(request, prompt_tokens);
  if (!params.ok()) return refuse(request.id, "invalid_value", std::move(params).error().message);
  if (auto fits = check_answer_size(request, prompt_tokens, params->max_tokens); !fits.ok()) {
    return refuse(request.id, "invalid_value", std::move(fits).error().message);
  }
  PreparedRequest prepared;
  prepared.id = request.id;
  prepared.prompt = *std::move(ids);
  prepared.sampling = *std::move(params);
  prepared.priority = request.priority;
  prepared.form = form(request, prepared.prompt);
  return prepared;
}

Result<std::vector<std::int32_t>> RequestPreprocessor::prompt_ids(Request& request) const {
  TROUPE_TRY(auto ids, tokens_of(request));
  TROUPE_CHECK(truncate(request, ids));
  // A tokenizer may know tokens that the model has no embedding row for.
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= config_.vocab_size) {
      return fail(ErrorCode::invalid_argument, "token id {} is not in the vocabulary of {}", id,
                  config_.vocab_size);
    }
  }
  return ids;
}

Result<void> RequestPreprocessor::truncate(const Request& request,
                                           std::vector<std::int32_t>& ids) const {
  if (!request.truncate_prompt_tokens) return {};
  const std::int64_t room = max_model_len_ - request.max_tokens.value_or(1);
  const std::int64_t asked = *request.truncate_prompt_tokens;
  if (asked > room) {
    return fail(ErrorCode::invalid_argument,
                "truncate_prompt_tokens is {}, but the context of {} tokens has room for a prompt "
                "of {} beside the answer",
                asked, max_model_len_, room);
  }
  const auto kept = static_cast<std::size_t>(std::max<std::int64_t>(0, asked < 0 ? room : asked));
  if (ids.size() <= kept) return {};
  // Tokens that the tokenizer puts before a text are kept, as in transformers.
  std::size_t front = 0;
  if (request.kind == PromptKind::text) {
    TROUPE_TRY(const auto plain, tokenizer_->encode(request.prompt, false));
    const auto text = std::ranges::search(ids, plain);
    if (!text.empty()) front = std::min(kept, static_cast<std::size_t>(text.begin() - ids.begin()));
  }
  const auto first = ids.begin() + static_cast<std::ptrdiff_t>(front);
  ids.erase(first, first + static_cast<std::ptrdiff_t>(ids.size() - kept));
  return {};
}

Result<std::vector<std::int32_t>> RequestPreprocessor::tokens_of(Request& request) const {
  if (request.kind == PromptKind::token_ids) return std::move(request.prompt_ids);
  if (!tokenizer_) {
    return fail(ErrorCode::unsupported,
                "the model has no tokenizer.json: give the prompt as token ids");
  }
  if (request.kind == PromptKind::text) {
    return tokenizer_->encode(request.prompt, request.add_special_tokens.value_or(true));
  }
  TROUPE_TRY(const std::string text, chat_text(request));
  return tokenizer_->encode(text, request.add_special_tokens.value_or(false));
}

Result<std::string> RequestPreprocessor::chat_text(const Request& request) const {
  using nlohmann::ordered_json;
  if (!template_) {
    return fail(ErrorCode::unsupported, "the model has no chat template: use /v1/completions");
  }
  const auto messages = ordered_json::parse(request.prompt, nullptr, false);
  if (messages.is_discarded()) {
    return fail(ErrorCode::invalid_argument, "the messages are not JSON");
  }
  ordered_json variables;
  if (!request.template_variables.empty()) {
    variables = ordered_json::parse(request.template_variables, nullptr, false);
  }
  return template_->render(messages, true, variables, now_);
}

Result<void> RequestPreprocessor::check(const Request& request) const {
  const auto known = [&](std::int32_t id) { return id >= 0 && id < config_.vocab_size; };
  if (!std::ranges::all_of(request.allowed_token_ids, known)) {
    return fail(ErrorCode::invalid_argument,
                "allowed_token_ids contains out-of-vocab token ids; the vocabulary has {}",
                config_.vocab_size);
  }
  if (!std::ranges::all_of(request.logit_bias, known, &TokenBias::token)) {
    return fail(ErrorCode::invalid_argument,
                "logit_bias contains out-of-vocab token ids; the vocabulary has {}",
                config_.vocab_size);
  }
  if (!tokenizer_ && !(request.stop.empty() && request.bad_words.empty())) {
    return fail(ErrorCode::invalid_argument,
                "stop and bad_words need a tokenizer, and the model has no tokenizer.json");
  }
  return {};
}

Result<SamplingParams> RequestPreprocessor::sampling(const Request& request,
                                                     std::int64_t prompt_tokens) const {
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
  pick(request.repetition_penalty, defaults_.repetition_penalty, params.repetition_penalty);
  params.top_k = std::max(params.top_k, 0);
  params.frequency_penalty = request.frequency_penalty;
  params.presence_penalty = request.presence_penalty;
  params.seed = request.seed;
  const std::int64_t room = max_model_len_ - prompt_tokens;
  const std::int64_t most = std::min(room, defaults_.max_new_tokens.value_or(room));
  params.max_tokens = static_cast<std::int32_t>(request.max_tokens.value_or(most));
  params.min_tokens = request.min_tokens;
  params.ignore_eos = request.ignore_eos;
  params.stop_token_ids = request.stop_token_ids;
  if (!request.ignore_eos) {
    params.stop_token_ids.insert(params.stop_token_ids.end(), eos_token_ids_.begin(),
                                 eos_token_ids_.end());
  }
  params.logit_bias = request.logit_bias;
  params.allowed_token_ids = request.allowed_token_ids;
  params.logprobs = request.logprobs;
  params.prompt_logprobs = request.prompt_logprobs;
  TROUPE_TRY(params.bad_words, bad_words(request));
  if (const std::size_t numbers = numbers_of(params); numbers > max_sampling_numbers) {
    return fail(ErrorCode::invalid_argument,
                "stop_token_ids, logit_bias, allowed_token_ids and the tokens of bad_words come to "
                "{} numbers, at most {} are taken",
                numbers, max_sampling_numbers);
  }
  return params;
}

Result<std::vector<std::vector<std::int32_t>>> RequestPreprocessor::bad_words(
    const Request& request) const {
  std::vector<std::vector<std::int32_t>> words;
  for (const std::string& text : request.bad_words) {
    const std::size_t begin = std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size());
    const std::string word = text.substr(begin);
    TROUPE_TRY(std::vector<std::int32_t> plain, tokenizer_->encode(word, false));
    TROUPE_TRY(std::vector<std::int32_t> spaced, tokenizer_->encode(" " + word, false));
    if (plain.empty()) {
      return fail(ErrorCode::invalid_argument, "bad_words must not hold words without a token");
    }
    const bool is_another = spaced.front() != plain.front() && spaced.size() == plain.size();
    words.push_back(std::move(plain));
    if (is_another) words.push_back(std::move(spaced));
  }
  return words;
}

AnswerForm RequestPreprocessor::form(Request& request, std::span<const std::int32_t> prompt) const {
  AnswerForm form;
  form.n = request.n;
  form.best_of = request.best_of;
  if (request.use_beam_search) form.beam = BeamParams{request.best_of, request.length_penalty};
  form.stop = std::move(request.stop);
  form.include_stop_str_in_output = request.include_stop_str_in_output;
  form.skip_special_tokens = request.skip_special_tokens;
  form.logprobs = request.logprobs;
  if (!request.ignore_eos) form.eos_ids = eos_token_ids_;
  form.own_end = own_end_;
  if (!tokenizer_) return form;
  form.detokenizer.emplace(*tokenizer_, form.skip_special_tokens, prompt);
  if (!request.echo) return form;
  if (request.kind == PromptKind::text) {
    form.echo = std::move(request.prompt);
    if (request.add_special_tokens.value_or(true))
      form.tokens_before_text = tokenizer_->tokens_before_text();
  } else {
    form.echo = tokenizer_->decode(prompt, false);
  }
  return form;
}

}  // namespace troupe
