#include "models/sampler/logits_editor.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace troupe {
namespace {

constexpr float masked = -std::numeric_limits<float>::infinity();

bool completes_word(std::span<const std::int32_t> output, std::span<const std::int32_t> word) {
  const auto before = word.first(word.size() - 1);
  return before.size() <= output.size() && std::ranges::equal(output.last(before.size()), before);
}

}  // namespace

bool penalizes(const SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.frequency_penalty != 0.0F ||
         params.presence_penalty != 0.0F;
}

void append_masked(const SamplingParams& params, const TokenHistory& history,
                   std::vector<std::int32_t>& ids) {
  for (const auto& word : params.bad_words) {
    if (completes_word(history.output, word)) ids.push_back(word.back());
  }
  if (std::ssize(history.output) < params.min_tokens) {
    ids.insert(ids.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  }
}

bool edits_logits(const SamplingParams& params) {
  return penalizes(params) || params.min_tokens > 0 || !params.logit_bias.empty() ||
         !params.allowed_token_ids.empty() || !params.bad_words.empty();
}

std::span<const float> LogitsEditor::edit(std::span<const float> logits,
                                          const SamplingParams& params,
                                          const TokenHistory& history) {
  if (params.allowed_token_ids.empty()) {
    edited_.assign(logits.begin(), logits.end());
  } else {
    allow_only(logits, params.allowed_token_ids);
  }
  masked_.clear();
  append_masked(params, history, masked_);
  for (const std::int32_t id : masked_) mask(id);
  for (const auto& [token, bias] : params.logit_bias) {
    if (token >= 0 && token < std::ssize(edited_)) edited_[static_cast<std::size_t>(token)] += bias;
  }
  if (penalizes(params)) penalize(params, history);
  return edited_;
}

void LogitsEditor::allow_only(std::span<const float> logits, std::span<const std::int32_t> ids) {
  edited_.assign(logits.size(), masked);
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= std::ssize(logits)) continue;
    edited_[static_cast<std::size_t>(id)] = logits[static_cast<std::size_t>(id)];
  }
}

void LogitsEditor::mask(std::int32_t id) {
  if (id >= 0 && id < std::ssize(edited_)) edited_[static_cast<std::size_t>(id)] = masked;
}

void LogitsEditor::penalize(const SamplingParams& params, const TokenHistory& history) {
  seen_.resize(edited_.size(), 0);
  const auto known = [&](std::int32_t id) { return id >= 0 && id < std::ssize(edited_); };
  for (const std::int32_t id : history.prompt) {
    if (known(id)) seen_[static_cast<std::size_t>(id)] = 1;
  }
  for (const std::int32_t id : history.output) {
    if (!known(id)) continue;
    auto& seen = seen_[static_cast<std::size_t>(id)];
    seen = std::max(seen, 1U) + 1;
  }
  const auto apply = [&](std::int32_t id) {
    if (!known(id)) return;
    const auto index = static_cast<std::size_t>(id);
    if (seen_[index] == 0) return;  // it came before
    const std::uint32_t count = seen_[index] - 1;
    seen_[index] = 0;
    float& logit = edited_[index];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (count == 0) return;
    logit -= params.frequency_penalty * static_cast<float>(count);
    logit -= params.presence_penalty;
  };
  for (const std::int32_t id : history.prompt) apply(id);
  for (const std::int32_t id : history.output) apply(id);
}

}  // namespace troupe
