#include "launcher/batch/output/answer_logprobs.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "launcher/batch/output/json_text.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe {
namespace {

/// A token with its log-probability and the texts of itself and its alternatives.
struct ScoredToken {
  const TokenLogprobs* scores = nullptr;  ///< null: the first token of a prompt
  std::string_view text;
  std::span<const std::string> top_texts;  ///< as long as scores->top_ids
};

/// Deals the texts of tokens and their alternatives out to the scores, after `unscored` texts of
/// tokens without scores. Texts that are missing are empty.
std::vector<ScoredToken> scored_tokens(std::span<const TokenLogprobs> scores,
                                       std::span<const std::string> texts, std::size_t unscored) {
  std::vector<ScoredToken> tokens;
  const auto take = [&](std::size_t count) {
    const auto taken = texts.first(std::min(count, texts.size()));
    texts = texts.subspan(taken.size());
    return taken;
  };
  const auto text_of = [&] {
    const auto own = take(1);
    return own.empty() ? std::string_view{} : std::string_view(own.front());
  };
  for (std::size_t i = 0; i < unscored; ++i) tokens.push_back({nullptr, text_of(), {}});
  for (const TokenLogprobs& entry : scores) {
    const std::string_view text = text_of();
    tokens.push_back({&entry, text, take(entry.top_ids.size())});
  }
  return tokens;
}

std::vector<ScoredToken> generated_tokens(const Choice& choice) {
  return scored_tokens(choice.logprobs, choice.logprob_texts, 0);
}

std::vector<ScoredToken> prompt_tokens(const Completion& completion) {
  if (completion.prompt_ids.empty()) return {};
  if (completion.prompt_logprobs.empty()) return {{nullptr, completion.prompt_text, {}}};
  return scored_tokens(completion.prompt_logprobs, completion.prompt_logprob_texts, 1);
}

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

/// "id": {logprob, rank, decoded_token}
void append_ranked(std::string& out, std::int32_t id, float logprob, std::int32_t rank,
                   std::string_view text) {
  out += fmt::format("\"{}\":{{\"logprob\":", id);
  append_json_logprob(out, logprob);
  out += fmt::format(",\"rank\":{},\"decoded_token\":", rank);
  append_json_string(out, text);
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

void append_chat_logprobs(std::string& out, const Choice& choice) {
  out += '{';
  append_list(out, "content", generated_tokens(choice), [&](const ScoredToken& token) {
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

void append_completion_logprobs(std::string& out, const Completion& completion,
                                const Choice& choice, bool echo) {
  std::vector<ScoredToken> tokens;
  if (echo) tokens = prompt_tokens(completion);
  for (const ScoredToken& token : generated_tokens(choice)) tokens.push_back(token);
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
    offset += text::count_code_points(token.text);
  });
  out += '}';
}

void append_prompt_logprobs(std::string& out, const Completion& completion) {
  out += '[';
  std::size_t position = 0;
  for (const ScoredToken& token : prompt_tokens(completion)) {
    if (position > 0) out += ',';
    const std::int32_t own = completion.prompt_ids[position++];
    if (token.scores == nullptr) {
      out += "null";
      continue;
    }
    out += '{';
    append_ranked(out, own, token.scores->logprob, token.scores->rank, token.text);
    for (std::size_t i = 0; i < alternatives(token); ++i) {
      const std::int32_t id = token.scores->top_ids[i];
      if (id == own) continue;
      out += ',';
      append_ranked(out, id, token.scores->top_logprobs[i], static_cast<std::int32_t>(i) + 1,
                    token.top_texts[i]);
    }
    out += '}';
  }
  out += ']';
}

}  // namespace troupe
