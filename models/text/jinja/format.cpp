#include "models/text/jinja/format.hpp"

#include <algorithm>

#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/format_spec.hpp"
#include "models/text/jinja/operators.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string ascii_repr(const Value& value) {
  const std::string repr = value.repr();
  if (std::ranges::any_of(repr, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    throw Failure{ErrorCode::unsupported, "ascii() of characters beyond ASCII"};
  return repr;
}

/// One `format % values`.
class Printf {
 public:
  Printf(Interpreter& interpreter, std::string_view format, const Value& values)
      : interpreter_(interpreter), format_(format), values_(values) {}

  std::string run() {
    std::string out;
    while (at_ < format_.size()) {
      const auto percent = std::min(format_.find('%', at_), format_.size());
      out.append(format_, at_, percent - at_);
      at_ = percent + 1;
      if (percent < format_.size()) out += conversion();
      check_text_size(out.size());
    }
    const bool is_many = values_.sequence() && values_.sequence()->is_tuple();
    const bool may_be_unused = values_.dict() || (values_.sequence() && !is_many);
    if (!may_be_unused && taken_ < (is_many ? values_.sequence()->items.size() : 1))
      throw invalid("not all arguments converted during string formatting");
    return out;
  }

 private:
  char next() {
    if (at_ >= format_.size()) throw invalid("incomplete format");
    return format_[at_++];
  }

  Value take() {
    const bool is_many = values_.sequence() && values_.sequence()->is_tuple();
    const std::size_t count = is_many ? values_.sequence()->items.size() : 1;
    if (taken_ >= count) throw invalid("not enough arguments for format string");
    ++taken_;
    return is_many ? values_.sequence()->items[taken_ - 1] : values_;
  }

  std::int64_t number() {
    if (at_ < format_.size() && format_[at_] == '*') {
      ++at_;
      const Value value = take();
      check_text_size(static_cast<std::size_t>(std::abs(std::max<std::int64_t>(
          value.integer(), -static_cast<std::int64_t>(max_text_bytes) - 1))));
      return value.integer();
    }
    std::int64_t value = 0;
    for (; at_ < format_.size() && is_digit(format_[at_]); ++at_) {
      value = value * 10 + (format_[at_] - '0');
      check_text_size(static_cast<std::size_t>(value));
    }
    return value;
  }

  std::optional<Value> key() {
    if (at_ >= format_.size() || format_[at_] != '(') return std::nullopt;
    const auto end = format_.find(')', at_);
    if (end == format_.npos) throw invalid("incomplete format key");
    if (!values_.dict()) throw invalid("format requires a mapping");
    const std::string_view name = format_.substr(at_ + 1, end - at_ - 1);
    const Value* found = values_.dict()->find(name);
    if (!found) throw invalid("the format needs a key '{}'", name);
    at_ = end + 1;
    return *found;
  }

  void flags(FormatSpec& spec) {
    bool is_left = false, has_zeros = false;
    for (; at_ < format_.size(); ++at_) {
      const char c = format_[at_];
      if (c == '-') {
        is_left = true;
      } else if (c == '0') {
        has_zeros = true;
      } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
        spec.sign = c;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c != ' ') {
        break;
      }
    }
    if (has_zeros && !is_left) spec.fill = U'0';
    spec.align = is_left ? '<' : has_zeros ? '=' : '>';
  }

  std::string conversion() {
    const auto named = key();
    FormatSpec spec;
    flags(spec);
    spec.width = number();
    if (spec.width < 0) {
      spec.width = -spec.width;
      spec.align = '<';
      spec.fill = U' ';
    }
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      spec.precision = std::max<std::int64_t>(number(), 0);
    }
    while (at_ < format_.size() && std::string_view("hlL").find(format_[at_]) != std::string::npos)
      ++at_;
    const char type = next();
    if (type == '%') {
      if (at_ < 2 || format_[at_ - 2] != '%')
        throw Failure{ErrorCode::unsupported, "'%%' with a width"};
      return "%";
    }
    return convert(named ? *named : take(), type, spec);
  }

  std::string convert(const Value& value, char type, FormatSpec spec) {
    interpreter_.charge_walk(value);
    if (type == 's' || type == 'r' || type == 'a' || type == 'c') {
      spec.fill = U' ';
      if (spec.align == '=') spec.align = '>';
      if (type == 'c') return character(value, spec);
      return format_text(type == 's'   ? value.to_string()
                         : type == 'r' ? value.repr()
                                       : ascii_repr(value),
                         spec, '>');
    }
    if (std::string_view("diuoxXeEfFgG").find(type) == std::string_view::npos)
      throw invalid("unsupported format character '{}'", type);
    require_defined(value);
    if (!value.is_number()) throw invalid("%{} needs a number, not a {}", type, value.type_name());
    const bool is_decimal = type == 'd' || type == 'i' || type == 'u';
    spec.type = is_decimal ? 'd' : type;
    if (is_decimal && !value.is_integer()) return format_number(whole(value), without_digits(spec));
    if (std::string_view("eEfFgG").find(type) == std::string_view::npos) {
      if (!value.is_integer())
        throw invalid("%{} needs an integer, not a {}", type, value.type_name());
      return format_number(value, without_digits(spec));
    }
    return format_number(value, spec);
  }

  static Value whole(const Value& value) {
    const double number = value.number();
    if (!(std::abs(number) < 9.2e18)) throw invalid("%d of {}", number);
    return static_cast<std::int64_t>(number);
  }

  static FormatSpec without_digits(FormatSpec spec) {
    if (spec.precision && *spec.precision > 0)
      throw Failure{ErrorCode::unsupported, "an integer with a precision"};
    spec.precision.reset();
    return spec;
  }

  static std::string character(const Value& value, FormatSpec spec) {
    spec.precision.reset();
    if (value.text()) {
      if (text::count_code_points(*value.text()) != 1) throw invalid("%c needs one character");
      return format_text(*value.text(), spec, '>');
    }
    const std::int64_t code = value.integer();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      throw invalid("%c of {}, which is no character", code);
    std::string text;
    text::append_code_point(static_cast<char32_t>(code), text);
    return format_text(text, spec, '>');
  }

  Interpreter& interpreter_;
  std::string_view format_;
  const Value& values_;
  std::size_t at_ = 0;
  std::size_t taken_ = 0;
};

/// One `format.format(...)`.
class Braces {
 public:
  Braces(Interpreter& interpreter, const Arguments& values)
      : interpreter_(interpreter), values_(values) {}

  std::string run(std::string_view format, int nesting) {
    constexpr int deepest = 2;  // {:{}}
    if (nesting > deepest) throw invalid("Max string recursion exceeded");
    std::string out;
    for (std::size_t at = 0; at < format.size();) {
      const char c = format[at];
      if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
        out += c;
        at += 2;
      } else if (c == '}') {
        throw invalid("Single '}}' encountered in format string");
      } else if (c == '{') {
        const std::size_t end = end_of_field(format, at + 1);
        out += field(format.substr(at + 1, end - at - 1), nesting);
        at = end + 1;
      } else {
        out += c;
        ++at;
      }
      check_text_size(out.size());
    }
    return out;
  }

 private:
  static std::size_t end_of_field(std::string_view format, std::size_t at) {
    int open = 1;
    for (; at < format.size(); ++at) {
      open += format[at] == '{' ? 1 : format[at] == '}' ? -1 : 0;
      if (open == 0) return at;
    }
    throw invalid("expected '}}' before end of string");
  }

  std::string field(std::string_view text, int nesting) {
    const auto name_end = std::min(text.find_first_of("!:"), text.size());
    std::string_view name = text.substr(0, name_end), rest = text.substr(name_end);
    if (name.find_first_of("{}") != name.npos) throw invalid("unexpected '{{' in field name");
    Value value = lookup(name);
    interpreter_.charge_walk(value);
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':'))
        throw invalid("expected ':' after conversion specifier");
      if (rest[1] == 'r') {
        value = value.repr();
      } else if (rest[1] == 's') {
        value = value.to_string();
      } else if (rest[1] == 'a') {
        value = ascii_repr(value);
      } else {
        throw invalid("Unknown conversion specifier '{}'", rest[1]);
      }
      rest.remove_prefix(2);
    }
    const std::string spec = rest.empty() ? "" : run(rest.substr(1), nesting + 1);
    return format_value(value, FormatSpec::parse(spec));
  }

  Value lookup(std::string_view name) {
    const auto end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    for (name.remove_prefix(end); !name.empty();) {
      if (name[0] == '.') {
        const auto stop = std::min(name.find_first_of(".[", 1), name.size());
        if (stop == 1) throw invalid("Empty attribute in format string");
        value = interpreter_.attribute(value, name.substr(1, stop - 1));
        name.remove_prefix(stop);
      } else {
        const auto stop = name.find(']');
        if (name[0] != '[' || stop == name.npos || stop == 1)
          throw invalid("Missing ']' in format string");
        value = interpreter_.subscript(value, key(name.substr(1, stop - 1)));
        name.remove_prefix(stop + 1);
      }
    }
    return value;
  }

  static Value key(std::string_view text) {
    if (!std::ranges::all_of(text, is_digit)) return text;
    constexpr std::size_t longest = 9;
    if (text.size() > longest) throw invalid("Too many decimal digits in format string");
    return static_cast<std::int64_t>(std::stoll(std::string(text)));
  }

  Value first(std::string_view name) {
    const bool is_number = std::ranges::all_of(name, is_digit);
    if (!is_number) {
      const Value* found = values_.find_named(name);
      if (!found) throw invalid("the format needs an argument '{}'", name);
      return *found;
    }
    if (name.empty() ? is_numbered_ : is_counted_)
      throw invalid("cannot switch between numbered and counted fields");
    (name.empty() ? is_counted_ : is_numbered_) = true;
    const std::size_t index =
        name.empty() ? next_++ : static_cast<std::size_t>(key(name).integer());
    if (index >= values_.positional.size())
      throw invalid("Replacement index {} out of range for positional args tuple", index);
    return values_.positional[index];
  }

  Interpreter& interpreter_;
  const Arguments& values_;
  std::size_t next_ = 0;
  bool is_counted_ = false, is_numbered_ = false;
};

}  // namespace

Value format_printf(Interpreter& interpreter, const Value& format, const Value& values) {
  if (format.is_markup())
    throw Failure{ErrorCode::unsupported, "formatting text that is marked as escaped"};
  interpreter.charge_text(format.text()->size());
  std::string text = Printf(interpreter, *format.text(), values).run();
  interpreter.charge_text(text.size());
  interpreter.charge_memory(text.size());
  return text;
}

Value format_braces(Interpreter& interpreter, std::string_view format, const Arguments& values) {
  return Braces(interpreter, values).run(format, 1);
}

}  // namespace troupe::jinja
