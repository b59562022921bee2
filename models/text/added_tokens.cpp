#include "models/text/added_tokens.hpp"

#include <algorithm>

#include "models/text/unicode/characters.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::text {
namespace {

/// Returns the position of the character that ends before `position` > 0.
std::size_t previous_character(std::string_view text, std::size_t position) {
  do {
    --position;
  } while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  return position;
}

bool has_word_character_before(std::string_view text, std::size_t position) {
  if (position == 0) return false;
  std::size_t at = previous_character(text, position);
  return is_word_character(next_code_point(text, at));
}

bool has_word_character_at(std::string_view text, std::size_t position) {
  return position < text.size() && is_word_character(next_code_point(text, position));
}

std::size_t skip_spaces_left(std::string_view text, std::size_t from, std::size_t least) {
  while (from > least) {
    const std::size_t before = previous_character(text, from);
    std::size_t at = before;
    if (!is_white_space(next_code_point(text, at))) break;
    from = before;
  }
  return from;
}

std::size_t skip_spaces_right(std::string_view text, std::size_t from) {
  while (from < text.size()) {
    std::size_t behind = from;
    if (!is_white_space(next_code_point(text, behind))) break;
    from = behind;
  }
  return from;
}

}  // namespace

void AddedTokens::add(Token token) {
  if (token.content.empty()) return;
  std::size_t node = 0;
  for (const char byte : token.content) {
    const auto [child, is_new] = nodes_[node].children.try_emplace(byte, nodes_.size());
    node = child->second;
    if (is_new) nodes_.emplace_back();
  }
  nodes_[node].token = tokens_.size();
  tokens_.push_back(std::move(token));
}

const AddedTokens::Token* AddedTokens::longest_at_start(std::string_view text) const {
  const Token* longest = nullptr;
  const Node* node = &nodes_[0];
  for (const char byte : text) {
    const auto child = node->children.find(byte);
    if (child == node->children.end()) break;
    node = &nodes_[child->second];
    if (node->token) longest = &tokens_[*node->token];
  }
  return longest;
}

void AddedTokens::split(
    std::string_view text,
    const std::function<void(std::string_view, std::optional<std::int32_t>)>& on_part) const {
  std::string first_bytes;
  for (const auto& [byte, child] : nodes_[0].children) first_bytes += byte;
  std::size_t emitted = 0;
  const auto emit = [&](std::size_t from, std::size_t to, std::optional<std::int32_t> id) {
    if (from < to) on_part(text.substr(from, to - from), id);
    emitted = to;
  };
  for (std::size_t at = text.find_first_of(first_bytes); at != text.npos;
       at = text.find_first_of(first_bytes, at)) {
    const Token* token = longest_at_start(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t from = at, to = at + token->content.size();
    at = to;
    if (from < emitted) continue;
    if (token->single_word &&
        (has_word_character_before(text, from) || has_word_character_at(text, to)))
      continue;
    if (token->takes_left_spaces) from = skip_spaces_left(text, from, emitted);
    if (token->takes_right_spaces) to = skip_spaces_right(text, to);
    emit(emitted, from, std::nullopt);
    emit(from, to, token->id);
  }
  emit(emitted, text.size(), std::nullopt);
}

}  // namespace troupe::text
