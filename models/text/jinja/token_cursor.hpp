#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/lexer.hpp"

namespace troupe::jinja {

/// A position in a list of tokens that ends with Kind::end, and a parser's steps from there.
class TokenCursor {
 public:
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  int line() const { return peek().line; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  bool sees(Token::Kind kind, std::string_view text = "") const {
    return peek().kind == kind && (text.empty() || peek().text == text);
  }
  bool sees_symbol(std::string_view text) const { return sees(Token::Kind::symbol, text); }
  bool sees_name(std::string_view text) const { return sees(Token::Kind::name, text); }
  bool skip(Token::Kind kind, std::string_view text = "") {
    const bool found = sees(kind, text);
    if (found) take();
    return found;
  }
  bool skip_symbol(std::string_view text) { return skip(Token::Kind::symbol, text); }
  bool skip_name(std::string_view text) { return skip(Token::Kind::name, text); }

  Token expect(Token::Kind kind, std::string_view text = "") {
    if (!sees(kind, text)) unexpected(text.empty() ? describe(kind) : text);
    return take();
  }
  void expect_symbol(std::string_view text) { expect(Token::Kind::symbol, text); }
  void expect_name(std::string_view text) { expect(Token::Kind::name, text); }

  [[noreturn]] void unexpected(std::string_view wanted) const {
    throw Failure{ErrorCode::corrupt_data,
                  fmt::format("expected {}, found {}", wanted,
                              peek().text.empty() ? describe(peek().kind) : peek().text),
                  line()};
  }

 private:
  static std::string_view describe(Token::Kind kind) {
    constexpr std::string_view names[] = {"text",
                                          "{{",
                                          "}}",
                                          "{%",
                                          "%}",
                                          "a name",
                                          "a string",
                                          "an integer",
                                          "a number",
                                          "a symbol",
                                          "the end of the template"};
    return names[static_cast<int>(kind)];
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace troupe::jinja
