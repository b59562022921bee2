#include "models/text/jinja/lexer.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "models/text/jinja/failure.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

/// Converts line ends to \n and removes the one at the end of the template.
std::string normalize_lines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_lines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) next_tag();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  bool sees(std::string_view what) const { return source_.compare(at_, what.size(), what) == 0; }

  [[noreturn]] void fail_here(std::string message) const {
    throw Failure{ErrorCode::corrupt_data, std::move(message), line_};
  }

  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  void skip_spaces() {
    std::size_t to = at_;
    while (to < source_.size() && is_space(source_[to])) ++to;
    advance(to);
  }

  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  /// Reads the text up to the next tag, and the tag.
  void next_tag() {
    std::size_t tag = source_.find('{', at_);
    while (tag != source_.npos &&
           (tag + 1 == source_.size() ||
            std::string_view("{%#").find(source_[tag + 1]) == std::string_view::npos))
      tag = source_.find('{', tag + 1);
    if (tag == source_.npos) {
      add_text(source_.substr(at_));
      advance(source_.size());
      return;
    }
    const char type = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    add_text(text_before(tag, type != '{', sign));
    advance(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (type == '#') {
      const std::size_t end = source_.find("#}", at_);
      if (end == source_.npos) fail_here("a comment has no end");
      advance(end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+') ? end - 1 : end);
      end_tag("#}", true);
    } else if (type == '%' && starts_raw()) {
      read_raw();
    } else {
      const bool is_block = type == '%';
      add(is_block ? Token::Kind::block_begin : Token::Kind::print_begin, "");
      read_expression_tokens(is_block);
    }
  }

  /// The text from here to the tag at `tag`, less the whitespace that its control sign strips.
  std::string text_before(std::size_t tag, bool is_stripped_on_its_line, char sign) const {
    std::string text = source_.substr(at_, tag - at_);
    if (sign == '-') {
      while (!text.empty() && is_space(text.back())) text.pop_back();
    } else if (is_stripped_on_its_line && sign != '+') {
      const auto line_start = text.rfind('\n') + 1;  // 0 if there is none
      if ((line_start > 0 || is_line_start_) &&
          std::all_of(text.begin() + static_cast<std::ptrdiff_t>(line_start), text.end(), is_space))
        text.resize(line_start);
    }
    return text;
  }

  void add_text(std::string text) {
    if (!text.empty()) add(Token::Kind::text, std::move(text));
  }

  /// Reads `end` with its sign, if present, and the whitespace that it strips.
  bool end_tag(std::string_view end, bool trims_newline) {
    const char sign = at_ < source_.size() ? source_[at_] : '\0';
    const bool is_signed = (sign == '-' || (sign == '+' && trims_newline)) &&
                           source_.compare(at_ + 1, end.size(), end) == 0;
    if (!is_signed && !sees(end)) return false;
    advance(at_ + end.size() + (is_signed ? 1 : 0));
    if (is_signed && sign == '-') {
      skip_spaces();
    } else if (!is_signed && trims_newline && sees("\n")) {
      advance(at_ + 1);
    }
    is_line_start_ = source_[at_ - 1] == '\n';
    return true;
  }

  /// Returns the position after `word` if it follows spaces at `from`, else npos.
  std::size_t behind_word(std::size_t from, std::string_view word) const {
    while (from < source_.size() && is_space(source_[from])) ++from;
    if (source_.compare(from, word.size(), word) != 0) return source_.npos;
    from += word.size();
    while (from < source_.size() && is_space(source_[from])) ++from;
    return from;
  }

  bool starts_raw() const {
    const std::size_t behind = behind_word(at_, "raw");
    return behind != source_.npos &&
           (source_.compare(behind, 2, "%}") == 0 || source_.compare(behind, 3, "-%}") == 0);
  }

  void read_raw() {
    advance(behind_word(at_, "raw"));
    end_tag("%}", false);
    is_line_start_ = false;
    for (std::size_t tag = source_.find("{%", at_); tag != source_.npos;
         tag = source_.find("{%", tag + 2)) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const std::size_t behind = behind_word(tag + (sign == '-' || sign == '+' ? 3 : 2), "endraw");
      if (behind == source_.npos) continue;
      add_text(text_before(tag, true, sign));
      advance(behind);
      if (!end_tag("%}", true)) fail_here("'endraw' has no %}");
      return;
    }
    fail_here("'raw' has no 'endraw'");
  }

  void read_expression_tokens(bool is_block) {
    int open_brackets = 0;
    for (;;) {
      skip_spaces();
      if (at_ == source_.size()) fail_here("a tag has no end");
      if (open_brackets == 0) {
        const auto kind = is_block ? Token::Kind::block_end : Token::Kind::print_end;
        const int line = line_;
        if (end_tag(is_block ? "%}" : "}}", is_block)) {
          tokens_.push_back({kind, "", line});
          return;
        }
      }
      const char c = source_[at_];
      if (c == '\'' || c == '"') {
        read_string(c);
      } else if (is_digit(c)) {
        read_number();
      } else if (is_name_start(c)) {
        std::size_t to = at_;
        while (to < source_.size() && is_name_part(source_[to])) ++to;
        add(Token::Kind::name, source_.substr(at_, to - at_));
        advance(to);
      } else {
        read_symbol();
        const char symbol = tokens_.back().text[0];
        if (symbol == '(' || symbol == '[' || symbol == '{') ++open_brackets;
        if (symbol == ')' || symbol == ']' || symbol == '}') --open_brackets;
        if (open_brackets < 0) fail_here(fmt::format("'{}' closes nothing", symbol));
      }
    }
  }

  void read_symbol() {
    for (const std::string_view symbol : {"==", "!=", "<=", ">=", "//", "**"}) {
      if (sees(symbol)) {
        add(Token::Kind::symbol, std::string(symbol));
        advance(at_ + 2);
        return;
      }
    }
    if (std::string_view("+-*/%~<>=()[]{},.:|").find(source_[at_]) == std::string_view::npos)
      fail_here(fmt::format("unexpected character '{}'", source_[at_]));
    add(Token::Kind::symbol, std::string(1, source_[at_]));
    advance(at_ + 1);
  }

  void read_number() {
    std::string digits;
    std::size_t to = at_;
    const auto read_digits = [&] {
      for (; to < source_.size() && (is_digit(source_[to]) || source_[to] == '_'); ++to)
        if (source_[to] != '_') digits += source_[to];
    };
    const auto is_digit_at = [&](std::size_t i) {
      return i < source_.size() && is_digit(source_[i]);
    };
    auto kind = Token::Kind::integer;
    read_digits();
    if (to < source_.size() && source_[to] == '.' && is_digit_at(to + 1)) {
      kind = Token::Kind::number;
      digits += source_[to++];
      read_digits();
    }
    if (to < source_.size() && (source_[to] == 'e' || source_[to] == 'E')) {
      const bool has_sign =
          to + 1 < source_.size() && (source_[to + 1] == '+' || source_[to + 1] == '-');
      if (is_digit_at(to + 1 + has_sign)) {
        kind = Token::Kind::number;
        digits += 'e';
        if (has_sign && source_[to + 1] == '-') digits += '-';
        to += 1 + has_sign;
        read_digits();
      }
    }
    add(kind, digits);
    advance(to);
  }

  void read_string(char quote) {
    const int line = line_;
    std::string value;
    std::size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = read_escape(i + 1, value);
      } else {
        value += source_[i];
      }
    }
    if (i >= source_.size()) fail_here("a string has no end");
    advance(i + 1);
    tokens_.push_back({Token::Kind::string, std::move(value), line});
  }

  /// Appends the value of the escape sequence whose letter is at `i`; returns its last position.
  std::size_t read_escape(std::size_t i, std::string& value) const {
    constexpr std::string_view letters = "nrtbfav0\\'\"", meanings("\n\r\t\b\f\a\v\0\\'\"", 11);
    const char letter = source_[i];
    if (const auto found = letters.find(letter); found != letters.npos) {
      value += meanings[found];
    } else if (letter == '\n') {
      // An escaped line end is not part of the string.
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      const std::size_t length = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
      unsigned code_point = 0;
      const std::string digits = source_.substr(i + 1, length);
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), code_point, 16);
      if (error != std::errc{} || digits.size() != length || end != digits.data() + length ||
          code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000))
        fail_here(fmt::format("\\{}{} stands for no character", letter, digits));
      text::append_code_point(code_point, value);
      return i + length;
    } else {
      value += '\\';
      value += letter;
    }
    return i;
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool is_line_start_ = true;  // true if the last tag ended with a line end
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace troupe::jinja
