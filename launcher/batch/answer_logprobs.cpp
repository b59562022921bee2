#include "launcher/batch/answer_logprobs.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "launcher/batch/json_text.hpp"

namespace troupe {
namespace {

/// A token with its log-probability and the texts of itself and its alternatives.
struct ScoredToken {
  const TokenLogprobs* scores = nullptr;  ///< null: the first token of a prompt
  std::string_view text;
  std::span<const std::string> top_texts;  ///< as long as scores->top_ids
};

/// Cuts Completion::logprob_texts up: first the prompt's tokens, then the generated ones. Texts
/// that are missing are empty.
class TokenTexts {
 public:
  explicit TokenTexts(const Completion& completion)
      : completion_(completion), rest_(completion.logprob_texts) {}

  std::vector<ScoredToken> prompt_tokens() {
    std::vector<ScoredToken> tokens;
    if (completion_.prompt_ids.empty()) return tokens;
    const bool has_first = rest_.size() > needed();
    tokens.push_back({});
    if (has_first) tokens.front().text = take(1).front();
    std::size_t scored_bytes = 0;
    for (const TokenLogprobs& scores : completion_.prompt_logprobs) {
      tokens.push_back(next(scores));
      scored_bytes += tokens.back().text.size();
    }
    const std::string_view prompt = completion_.prompt_text;
    if (!has_first && prompt.size() >= scored_bytes) {
      tokens.front().text = prompt.substr(0, prompt.size() - scored_bytes);
    }
    return tokens;
  }

  std::vector<ScoredToken> generated_tokens() {
    std::vector<ScoredToken> tokens;
    for (const TokenLogprobs& scores : completion_.logprobs) tokens.push_back(next(scores));
    return tokens;
  }

  /// Passes over the prompt's texts.
  void skip_prompt() { prompt_tokens(); }

 private:
  std::size_t needed() const {
    std::size_t count = 0;
    for (const auto& scores : completion_.prompt_logprobs) count += 1 + scores.top_ids.size();
    for (const auto& scores : completion_.logprobs) count += 1 + scores.top_ids.size();
    return count;
  }

  std::span<const std::string> take(std::size_t count) {
    const auto taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

  ScoredToken next(const TokenLogprobs& scores) {
    const auto own = take(1);
    ScoredToken token{&scores, own.empty() ? std::string_view{} : std::string_view(own.front()),
                      take(scores.top_ids.size())};
    return token;
  }

  const Completion& completion_;
  std::span<const std::string> rest_;
};

std::size_t alternatives(const ScoredToken& token) {
  return std::min(token.top_texts.size(), token.scores->top_logprobs.size());
}

void append_bytes(std::string& out, std::string_view text) {
  out += '[';
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ",",
                       static_cast<unsigned>(static_cast<unsigned char>(text[i])));
  }
  out += ']';
}

void append_chat_token(std::string& out, std::string_view text, float logprob) {
  out += "{\"token\":";
  append_json_string(out, text);
  out += ",\"logprob\":";
  append_json_logprob(out, logprob);
  out += ",\"bytes\":";
  append_bytes(out, text);
}

void append_entry(std::string& out, std::string_view text, float logprob) {
  append_json_string(out, text);
  out += ':';
  append_json_logprob(out, logprob);
}

/// {chosen: logprob, alternatives...}; of equal texts the first stays, as keys must differ.
void append_top_object(std::string& out, const ScoredToken& token) {
  out += '{';
  append_entry(out, token.text, token.scores->logprob);
  for (std::size_t i = 0; i < alternatives(token); ++i) {
    const std::string& text = token.top_texts[i];
    const auto before = token.top_texts.first(i);
    if (text == token.text || std::find(before.begin(), before.end(), text) != before.end()) {
      continue;
    }
    out += ',';
    append_entry(out, text, token.scores->top_logprobs[i]);
  }
  out += '}';
}

template <class Append>
void append_list(std::string& out, std::string_view key, const std::vector<ScoredToken>& tokens,
                 Append append) {
  out += fmt::format("\"{}\":[", key);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    append(tokens[i]);
  }
  out += ']';
}

}  // namespace

void append_chat_logprobs(std::string& out, const Completion& completion) {
  TokenTexts texts(completion);
  if (!completion.prompt_logprobs.empty()) texts.skip_prompt();
  out += '{';
  append_list(out, "content", texts.generated_tokens(), [&](const ScoredToken& token) {
    append_chat_token(out, token.text, token.scores->logprob);
    out += ",\"top_logprobs\":[";
    for (std::size_t i = 0; i < alternatives(token); ++i) {
      if (i > 0) out += ',';
      append_chat_token(out, token.top_texts[i], token.scores->top_logprobs[i]);
      out += '}';
    }
    out += "]}";
  });
  out += '}';
}

void append_completion_logprobs(std::string& out, const Completion& completion, bool echo) {
  TokenTexts texts(completion);
  std::vector<ScoredToken> tokens;
  if (echo) {
    tokens = texts.prompt_tokens();
  } else if (!completion.prompt_logprobs.empty()) {
    texts.skip_prompt();
  }
  for (const ScoredToken& token : texts.generated_tokens()) tokens.push_back(token);
  out += '{';
  append_list(out, "tokens", tokens,
              [&](const ScoredToken& token) { append_json_string(out, token.text); });
  out += ',';
  append_list(out, "token_logprobs", tokens, [&](const ScoredToken& token) {
    if (token.scores == nullptr) {
      out += "null";
    } else {
      append_json_logprob(out, token.scores->logprob);
    }
  });
  out += ',';
  append_list(out, "top_logprobs", tokens, [&](const ScoredToken& token) {
    if (token.scores == nullptr) {
      out += "null";
    } else {
      append_top_object(out, token);
    }
  });
  out += ',';
  std::size_t offset = 0;
  append_list(out, "text_offset", tokens, [&](const ScoredToken& token) {
    out += fmt::format("{}", offset);
    offset += count_code_points(token.text);
  });
  out += '}';
}

}  // namespace troupe
