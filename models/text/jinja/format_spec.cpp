#include "models/text/jinja/format_spec.hpp"

#include <algorithm>
#include <cmath>

#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/representation.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

constexpr std::int64_t max_precision = 10'000;  // digits after the point

/// A cursor over the text of a format specification.
struct SpecReader {
  std::u32string text;
  std::size_t at = 0;

  char32_t peek(std::size_t ahead = 0) const {
    return at + ahead < text.size() ? text[at + ahead] : U'\0';
  }
  static bool is_align(char32_t c) { return c == U'<' || c == U'>' || c == U'^' || c == U'='; }
  bool skip(char32_t c) {
    const bool found = peek() == c && at < text.size();
    at += found ? 1 : 0;
    return found;
  }
  bool sees_digit() const { return peek() >= U'0' && peek() <= U'9'; }
  std::int64_t number() {
    std::int64_t value = 0;
    for (; sees_digit(); ++at) {
      value = value * 10 + (peek() - U'0');
      check_text_size(static_cast<std::size_t>(value));
    }
    return value;
  }
};

void insert_groups(std::string& digits, char separator, std::size_t size) {
  const auto end = std::find_if(digits.begin(), digits.end(),
                                [](char c) { return c == '.' || c == 'e' || c == '%'; });
  auto at = static_cast<std::size_t>(end - digits.begin());
  while (at > size) {
    at -= size;
    digits.insert(at, 1, separator);
  }
}

/// The digits of an integer without its sign, with the prefix of the alternate form.
std::string integer_digits(std::int64_t value, const FormatSpec& spec, std::string& prefix) {
  const auto magnitude =
      value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  std::string digits;
  switch (spec.type) {
    case '\0':
    case 'd':
      digits = fmt::format("{}", magnitude);
      break;
    case 'x':
      digits = fmt::format("{:x}", magnitude);
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude);
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude);
      break;
    case 'b':
      digits = fmt::format("{:b}", magnitude);
      break;
    default:
      throw invalid("an integer cannot be formatted as '{}'", spec.type);
  }
  if (spec.precision) throw invalid("an integer is formatted without a precision");
  if (spec.alternate && spec.type != 'd' && spec.type != '\0') prefix = {'0', spec.type};
  const bool is_decimal = spec.type == 'd' || spec.type == '\0';
  if (spec.grouping == ',' && !is_decimal) throw invalid("',' goes with decimal numbers only");
  if (spec.grouping) insert_groups(digits, spec.grouping, is_decimal ? 3 : 4);
  return digits;
}

/// The digits of a float without its sign.
std::string float_digits(double value, const FormatSpec& spec) {
  const std::int64_t precision = spec.precision.value_or(6);
  if (precision > max_precision)
    throw Failure{ErrorCode::resource_exhausted,
                  fmt::format("more than {} digits of a number", max_precision)};
  const auto digits = static_cast<int>(precision);
  const double magnitude = std::abs(value);
  if (spec.alternate) throw Failure{ErrorCode::unsupported, "'#' with a float"};
  std::string text;
  switch (spec.type) {
    case '\0':
      if (spec.precision)
        throw Failure{ErrorCode::unsupported, "a float with a precision but without a type"};
      text = float_text(magnitude);
      break;
    case 'e':
      text = fmt::format("{:.{}e}", magnitude, digits);
      break;
    case 'E':
      text = fmt::format("{:.{}E}", magnitude, digits);
      break;
    case 'f':
    case 'F':
      text = fmt::format("{:.{}f}", magnitude, digits);
      break;
    case 'g':
      text = fmt::format("{:.{}g}", magnitude, digits);
      break;
    case 'G':
      text = fmt::format("{:.{}G}", magnitude, digits);
      break;
    case '%':
      text = fmt::format("{:.{}f}%", magnitude * 100, digits);
      break;
    default:
      throw invalid("a float cannot be formatted as '{}'", spec.type);
  }
  if (spec.grouping && std::isfinite(value)) insert_groups(text, spec.grouping, 3);
  return text;
}

bool is_float_type(char type) {
  return type != '\0' && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

}  // namespace

FormatSpec FormatSpec::parse(std::string_view text) {
  SpecReader reader{text::to_code_points(text)};
  FormatSpec spec;
  if (SpecReader::is_align(reader.peek(1))) {
    spec.fill = reader.peek();
    spec.align = static_cast<char>(reader.peek(1));
    reader.at += 2;
  } else if (SpecReader::is_align(reader.peek())) {
    spec.align = static_cast<char>(reader.peek());
    ++reader.at;
  }
  for (const char sign : {'+', '-', ' '}) {
    if (reader.peek() != static_cast<char32_t>(sign)) continue;
    spec.sign = sign;
    ++reader.at;
    break;
  }
  spec.alternate = reader.skip(U'#');
  if (reader.peek() == U'0') {
    ++reader.at;
    if (!spec.align) {
      spec.fill = U'0';
      spec.align = '=';
    }
  }
  spec.width = reader.number();
  for (const char grouping : {',', '_'})
    if (!spec.grouping && reader.skip(static_cast<char32_t>(grouping))) spec.grouping = grouping;
  if (reader.skip(U'.')) {
    if (!reader.sees_digit()) throw invalid("a format with '.' and no digits behind it");
    spec.precision = reader.number();
  }
  if (const char32_t type = reader.peek(); type != U'\0') {
    spec.type = type < 0x80 ? static_cast<char>(type) : '?';
    ++reader.at;
  }
  if (reader.at != reader.text.size()) throw invalid("'{}' is no format", text);
  if (spec.type == 'n' || spec.type == 'c')
    throw Failure{ErrorCode::unsupported, fmt::format("the format '{}'", spec.type)};
  return spec;
}

std::string format_text(std::string_view text, const FormatSpec& spec, char own_align) {
  std::u32string characters = text::to_code_points(text);
  if (spec.precision && static_cast<std::size_t>(*spec.precision) < characters.size())
    characters.resize(static_cast<std::size_t>(*spec.precision));
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(spec.width, 0));
  check_text_size(width);
  if (width <= characters.size()) return text::to_utf8(characters);
  const std::size_t missing = width - characters.size();
  const char align = spec.align ? spec.align : own_align;
  const std::size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  return text::to_utf8(std::u32string(before, spec.fill) + characters +
                       std::u32string(missing - before, spec.fill));
}

std::string format_number(const Value& value, const FormatSpec& spec) {
  std::string prefix, digits;
  bool is_negative = false;
  if (value.is_integer() && !is_float_type(spec.type)) {
    is_negative = value.integer() < 0;
    digits = integer_digits(value.integer(), spec, prefix);
  } else {
    is_negative = std::signbit(value.number()) && !std::isnan(value.number());
    digits = float_digits(value.number(), spec);
  }
  const std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  FormatSpec padding = spec;
  padding.precision.reset();
  if (spec.align != '=') return format_text(sign + prefix + digits, padding, '>');
  if (spec.grouping && spec.fill == U'0')
    throw Failure{ErrorCode::unsupported, "zeros in front of grouped digits"};
  padding.width -= static_cast<std::int64_t>(sign.size() + prefix.size());
  padding.align = '>';
  return sign + prefix + format_text(digits, padding, '>');
}

std::string format_value(const Value& value, const FormatSpec& spec) {
  const bool is_plain = spec.fill == U' ' && !spec.align && spec.sign == '-' && !spec.alternate &&
                        !spec.grouping && spec.width == 0 && !spec.precision && !spec.type;
  if (is_plain) return value.to_string();
  if (value.is_number()) return format_number(value, spec);
  if (!value.text()) throw invalid("a {} takes no format", value.type_name());
  if ((spec.type != '\0' && spec.type != 's') || spec.sign != '-' || spec.alternate ||
      spec.grouping || (spec.align == '=' && spec.fill != U'0'))
    throw invalid("a string cannot be formatted like a number");
  FormatSpec padding = spec;
  if (spec.align == '=') padding.align = '<';  // padding with zeros alone: after the string
  return format_text(*value.text(), padding, '<');
}

}  // namespace troupe::jinja
