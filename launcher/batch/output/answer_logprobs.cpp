#include "launcher/batch/output/answer_logprobs.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/batch/json_text.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe {
namespace {

/// A token with its log-probability and the bytes of itself and its alternatives.
struct ScoredToken {
  const TokenLogprobs* scores = nullptr;  ///< null: the first token of a prompt
  std::int32_t id = -1;
  std::string_view bytes;
  std::span<const std::string> top_bytes;  ///< as long as scores->top_ids
};

/// Distributes the bytes of tokens and their alternatives over the scores, after `unscored` tokens
/// without scores. Missing entries are empty.
std::vector<ScoredToken> scored_tokens(std::span<const TokenLogprobs> scores,
                                       std::span<const std::int32_t> ids,
                                       std::span<const std::string> bytes, std::size_t unscored) {
  std::vector<ScoredToken> tokens;
  const auto take = [&](std::size_t count) {
    const auto taken = bytes.first(std::min(count, bytes.size()));
    bytes = bytes.subspan(taken.size());
    return taken;
  };
  const auto bytes_of = [&] {
    const auto own = take(1);
    return own.empty() ? std::string_view{} : std::string_view(own.front());
  };
  const auto id_of = [&] { return tokens.size() < ids.size() ? ids[tokens.size()] : -1; };
  for (std::size_t i = 0; i < unscored; ++i) tokens.push_back({nullptr, id_of(), bytes_of(), {}});
  for (const TokenLogprobs& entry : scores) {
    const std::string_view own = bytes_of();
    tokens.push_back({&entry, id_of(), own, take(entry.top_ids.size())});
  }
  return tokens;
}

std::vector<ScoredToken> generated_tokens(const Choice& choice) {
  return scored_tokens(choice.logprobs, choice.token_ids, choice.logprob_bytes, 0);
}

std::vector<ScoredToken> prompt_tokens(const Completion& completion) {
  if (completion.prompt_ids.empty()) return {};
  if (completion.prompt_logprobs.empty())
    return {{nullptr, completion.prompt_ids.front(), completion.prompt_text, {}}};
  return scored_tokens(completion.prompt_logprobs, completion.prompt_ids,
                       completion.prompt_logprob_bytes, 1);
}

std::size_t alternatives(const ScoredToken& token) {
  return std::min(token.top_bytes.size(), token.scores->top_logprobs.size());
}

void append_bytes(std::string& out, std::string_view bytes) {
  out += '[';
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ",",
                       static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
  }
  out += ']';
}

/// The text of a token by itself; a part of a character is U+FFFD.
std::string text_of(std::string_view bytes) {
  std::string text;
  text::append_lossy(bytes, true, text);
  return text;
}

/// The token in a completion's lists, which have no separate bytes: a part of a character is
/// spelled "bytes:\xe4\xb8", as OpenAI does.
std::string name_of(std::string_view bytes) {
  if (text::is_valid_utf8(bytes)) return std::string(bytes);
  std::string name = "bytes:";
  for (const char byte : bytes) {
    name += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  }
  return name;
}

void append_chat_token(std::string& out, std::string_view bytes, float logprob) {
  out += "{\"token\":";
  append_json_string(out, text_of(bytes));
  out += ",\"logprob\":";
  append_json_logprob(out, logprob);
  out += ",\"bytes\":";
  append_bytes(out, bytes);
}

void append_entry(std::string& out, std::string_view name, float logprob) {
  append_json_string(out, name);
  out += ':';
  append_json_logprob(out, logprob);
}

/// {chosen: logprob, alternatives...}. Keys must differ: of tokens with the same bytes, e.g. a
/// letter and its byte token, all but the first are written as vLLM's "token_id:N".
void append_top_object(std::string& out, const ScoredToken& token) {
  out += '{';
  append_entry(out, name_of(token.bytes), token.scores->logprob);
  for (std::size_t i = 0; i < alternatives(token); ++i) {
    const std::int32_t id = token.scores->top_ids[i];
    if (id == token.id) continue;
    const std::string& bytes = token.top_bytes[i];
    const auto before = token.top_bytes.first(i);
    const bool is_taken =
        bytes == token.bytes || std::find(before.begin(), before.end(), bytes) != before.end();
    out += ',';
    append_entry(out, is_taken ? fmt::format("token_id:{}", id) : name_of(bytes),
                 token.scores->top_logprobs[i]);
  }
  out += '}';
}

/// "id": {logprob, rank, decoded_token}
void append_ranked(std::string& out, std::int32_t id, float logprob, std::int32_t rank,
                   std::string_view bytes) {
  out += fmt::format("\"{}\":{{\"logprob\":", id);
  append_json_logprob(out, logprob);
  out += fmt::format(",\"rank\":{},\"decoded_token\":", rank);
  append_json_string(out, text_of(bytes));
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

/// Appends where the tokens begin in the choice's text, which with `echo` follows the prompt's.
void append_offsets(std::string& out, const Completion& completion, const Choice& choice, bool echo,
                    std::size_t tokens) {
  std::vector<std::size_t> offsets;
  std::size_t before = 0;
  if (echo) {
    offsets.assign(completion.prompt_text_offsets.begin(), completion.prompt_text_offsets.end());
    before = text::count_code_points(completion.prompt_text);
  }
  for (const std::int32_t offset : choice.text_offsets)
    offsets.push_back(before + static_cast<std::size_t>(offset));
  offsets.resize(tokens, before);
  out += fmt::format("\"text_offset\":[{}]", fmt::join(offsets, ","));
}

}  // namespace

void append_chat_logprobs(std::string& out, const Choice& choice) {
  out += '{';
  append_list(out, "content", generated_tokens(choice), [&](const ScoredToken& token) {
    append_chat_token(out, token.bytes, token.scores->logprob);
    out += ",\"top_logprobs\":[";
    for (std::size_t i = 0; i < alternatives(token); ++i) {
      if (i > 0) out += ',';
      append_chat_token(out, token.top_bytes[i], token.scores->top_logprobs[i]);
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
              [&](const ScoredToken& token) { append_json_string(out, name_of(token.bytes)); });
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
  append_offsets(out, completion, choice, echo, tokens.size());
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
    append_ranked(out, own, token.scores->logprob, token.scores->rank, token.bytes);
    for (std::size_t i = 0; i < alternatives(token); ++i) {
      const std::int32_t id = token.scores->top_ids[i];
      if (id == own) continue;
      out += ',';
      append_ranked(out, id, token.scores->top_logprobs[i], static_cast<std::int32_t>(i) + 1,
                    token.top_bytes[i]);
    }
    out += '}';
  }
  out += ']';
}

}  // namespace troupe
