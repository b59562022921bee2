#include "models/text/jinja/text_functions.hpp"

#include <algorithm>
#include <charconv>

#include "models/text/jinja/failure.hpp"
#include "models/text/unicode/case_mapping.hpp"
#include "models/text/unicode/characters.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  return c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

/// Removes underscores between digits; none if one is anywhere else.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool is_between =
        i > 0 && i + 1 < text.size() && digit_of(text[i - 1]) < 99 && digit_of(text[i + 1]) < 99;
    if (!is_between) return std::nullopt;
  }
  return out;
}

void refuse_other_digits(std::string_view text) {
  const std::u32string characters = text::to_code_points(text);
  if (std::ranges::any_of(characters, [](char32_t c) { return c > 0x7F && text::is_decimal(c); }))
    throw Failure{ErrorCode::unsupported, "a number in digits other than 0 to 9"};
}

}  // namespace

std::string strip(std::string_view text, const Value* characters, bool left, bool right) {
  if (characters && characters->is_none()) characters = nullptr;
  if (characters && !characters->text())
    throw invalid("strip() of a {}, not of a string", characters->type_name());
  const std::u32string set = characters ? text::to_code_points(*characters->text()) : U"";
  const auto goes = [&](char32_t c) {
    return characters ? set.find(c) != set.npos : text::is_python_space(c);
  };
  while (left && !text.empty()) {
    std::size_t behind = 0;
    if (!goes(text::next_code_point(text, behind))) break;
    text.remove_prefix(behind);
  }
  while (right && !text.empty()) {
    std::size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    std::size_t at = start;
    if (!goes(text::next_code_point(text, at))) break;
    text = text.substr(0, start);
  }
  return std::string(text);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t most) {
  std::string out;
  if (from.empty()) {  // before every character, and at the end
    std::size_t at = 0;
    for (; most != 0 && at < text.size(); --most) {
      const std::size_t start = at;
      text::next_code_point(text, at);
      out.append(to).append(text.substr(start, at - start));
      check_text_size(out.size());
    }
    return out.append(most != 0 ? to : "").append(text.substr(at));
  }
  std::size_t copied = 0;
  for (auto at = text.find(from); at != text.npos && most != 0;
       at = text.find(from, copied), --most) {
    out.append(text, copied, at - copied).append(to);
    check_text_size(out.size());
    copied = at + from.size();
  }
  return out.append(text.substr(copied));
}

std::vector<std::string_view> lines_of(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t from = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t c = text::next_code_point(text, at);
    if (!ends_line(c)) continue;
    if (c == U'\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(from, (keep_ends ? at : end) - from));
    check_item_count(lines.size());
    from = at;
  }
  if (from < text.size()) lines.push_back(text.substr(from));
  return lines;
}

std::string padded(std::string_view text, std::int64_t width, char32_t fill, char align) {
  if (width > 0) check_text_size(static_cast<std::size_t>(width));
  const auto size = static_cast<std::int64_t>(text::count_code_points(text));
  if (width <= size) return std::string(text);
  const std::int64_t missing = width - size;
  // An odd remainder goes to the left of a text of even length: CPython's rule.
  const std::int64_t before = align == '<'   ? 0
                              : align == '>' ? missing
                                             : missing / 2 + (missing & width & 1);
  std::string one;
  text::append_code_point(fill, one);
  std::string out;
  out.reserve(text.size() + static_cast<std::size_t>(missing) * one.size());
  for (std::int64_t i = 0; i < before; ++i) out += one;
  out += text;
  for (std::int64_t i = before; i < missing; ++i) out += one;
  return out;
}

bool has_case(std::string_view text, bool upper) {
  bool has_any = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = text::next_code_point(text, at);
    if (text::is_title(c) || (upper ? text::is_lower(c) : text::is_upper(c))) return false;
    has_any |= upper ? text::is_upper(c) : text::is_lower(c);
  }
  return has_any;
}

std::optional<std::int64_t> parse_integer(std::string_view given, std::int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  refuse_other_digits(given);
  std::string text = strip(given, nullptr, true, true);
  const bool is_negative = text.starts_with('-');
  if (text.starts_with('-') || text.starts_with('+')) text.erase(0, 1);
  const char letter = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  const std::int64_t own_base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (own_base && (base == 0 || base == own_base)) {
    base = own_base;
    text.erase(0, text.size() > 2 && text[2] == '_' ? 3 : 2);
  } else if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != text.npos)
      return std::nullopt;
  }
  const auto digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  for (const char c : *digits)
    if (digit_of(c) >= base) return std::nullopt;
  std::int64_t value = 0;
  const std::string sign_and_digits = (is_negative ? "-" : "") + *digits;
  const auto [end, error] =
      std::from_chars(sign_and_digits.data(), sign_and_digits.data() + sign_and_digits.size(),
                      value, static_cast<int>(base));
  if (error != std::errc{}) throw invalid("{} is an integer of more than 64 bits", given);
  return value;
}

std::optional<double> parse_float(std::string_view given) {
  refuse_other_digits(given);
  const auto text = without_underscores(strip(given, nullptr, true, true));
  if (!text || text->empty()) return std::nullopt;
  std::string_view digits = *text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.empty() || digits.starts_with('+') || digits.find('(') != digits.npos)
    return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size()) return std::nullopt;
  // A value outside a double's range becomes infinity or 0.
  if (error == std::errc::result_out_of_range)
    return std::strtod(std::string(digits).c_str(), nullptr);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

}  // namespace troupe::jinja
