// Python's methods of strings.
#include <algorithm>

#include "models/text/jinja/format.hpp"
#include "models/text/jinja/method_call.hpp"
#include "models/text/jinja/text_functions.hpp"
#include "models/text/unicode/case_mapping.hpp"
#include "models/text/unicode/characters.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

Value text_list(const std::vector<std::string_view>& parts, Interpreter& interpreter) {
  constexpr std::size_t bytes_of_text = 64;
  interpreter.charge_items(parts.size());
  interpreter.charge_memory(parts.size() * bytes_of_text);
  std::vector<Value> items;
  for (const std::string_view part : parts) items.emplace_back(part);
  return Value::list(std::move(items));
}

/// Returns where the last character of `text` begins.
std::size_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool begins_with_space(std::string_view text) {
  std::size_t at = 0;
  return !text.empty() && text::is_python_space(text::next_code_point(text, at));
}

bool ends_with_space(std::string_view text) {
  return !text.empty() && begins_with_space(text.substr(last_character(text)));
}

std::string_view without_space_before(std::string_view text) {
  while (begins_with_space(text)) {
    std::size_t behind = 0;
    text::next_code_point(text, behind);
    text.remove_prefix(behind);
  }
  return text;
}

std::string_view without_space_behind(std::string_view text) {
  while (ends_with_space(text)) text = text.substr(0, last_character(text));
  return text;
}

bool is_full(const std::vector<std::string_view>& parts, std::int64_t most) {
  check_item_count(parts.size());
  return most >= 0 && static_cast<std::int64_t>(parts.size()) >= most;
}

/// The words between whitespace; after `most` of them (if that is not negative) the rest.
std::vector<std::string_view> words_of(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> words;
  text = without_space_before(text);
  while (!text.empty() && !is_full(words, most)) {
    std::size_t end = 0;
    while (end < text.size() && !begins_with_space(text.substr(end)))
      text::next_code_point(text, end);
    words.push_back(text.substr(0, end));
    text = without_space_before(text.substr(end));
  }
  if (!text.empty()) words.push_back(text);
  return words;
}

/// The same from the end, the last word first.
std::vector<std::string_view> words_from_right(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> words;
  text = without_space_behind(text);
  while (!text.empty() && !is_full(words, most)) {
    std::size_t begin = text.size();
    while (begin > 0 && !ends_with_space(text.substr(0, begin)))
      begin = last_character(text.substr(0, begin));
    words.push_back(text.substr(begin));
    text = without_space_behind(text.substr(0, begin));
  }
  if (!text.empty()) words.push_back(text);
  return words;
}

Value split(const MethodCall& call) {
  const std::int64_t most = call.bound.integer(1, -1);
  if (!call.bound[0] || call.bound[0]->is_none())
    return text_list(words_of(call.characters(), most), call.interpreter);
  const std::string& by = call.text(0);
  if (by.empty()) throw invalid("split() by an empty string");
  std::vector<std::string_view> parts;
  std::string_view rest = call.self();
  while (!is_full(parts, most)) {
    const auto at = rest.find(by);
    if (at == rest.npos) break;
    parts.push_back(rest.substr(0, at));
    rest.remove_prefix(at + by.size());
  }
  parts.push_back(rest);
  return text_list(parts, call.interpreter);
}

Value split_from_right(const MethodCall& call) {
  const std::int64_t most = call.bound.integer(1, -1);
  if (most < 0) return split(call);
  std::vector<std::string_view> parts;
  std::string_view rest = call.self();
  if (!call.bound[0] || call.bound[0]->is_none()) {
    parts = words_from_right(call.characters(), most);
  } else {
    const std::string& by = call.text(0);
    if (by.empty()) throw invalid("rsplit() by an empty string");
    while (!is_full(parts, most)) {
      const auto at = rest.rfind(by);
      if (at == rest.npos) break;
      parts.push_back(rest.substr(at + by.size()));
      rest = rest.substr(0, at);
    }
    parts.push_back(rest);
  }
  std::reverse(parts.begin(), parts.end());
  return text_list(parts, call.interpreter);
}

Value split_lines(const MethodCall& call) {
  return text_list(lines_of(call.self(), call.bound.is_true(0)), call.interpreter);
}

Value partition(const MethodCall& call, bool from_right) {
  const std::string &text = call.self(), &by = call.text(0);
  if (by.empty()) throw invalid("{}() by an empty string", call.name);
  const auto at = from_right ? text.rfind(by) : text.find(by);
  if (at == text.npos)
    return from_right ? Value::tuple({"", "", text}) : Value::tuple({text, "", ""});
  return Value::tuple({text.substr(0, at), by, text.substr(at + by.size())});
}

/// The positions in a text of the characters `start` to `stop`, given by arguments `first` and
/// `first` + 1.
struct Span {
  std::string_view text;
  std::int64_t characters_before;
  bool is_within;  ///< start is not after the end

  Span(const MethodCall& call, std::size_t first) {
    const std::string& self = call.self();
    call.interpreter.charge_text(self.size());
    const auto size = static_cast<std::int64_t>(text::count_code_points(self));
    const auto bound = [&](std::size_t i, std::int64_t otherwise) {
      const Value* given = call.bound[i];
      if (!given || given->is_none()) return otherwise;
      const std::int64_t at = given->integer();
      return at < 0 ? std::max<std::int64_t>(at + size, 0) : at;
    };
    const std::int64_t start = bound(first, 0), stop = std::min(bound(first + 1, size), size);
    is_within = start <= size && start <= stop;
    characters_before = start;
    const auto byte_of = [&](std::int64_t character) {
      std::size_t at = 0;
      for (std::int64_t i = 0; i < character; ++i) text::next_code_point(self, at);
      return at;
    };
    if (!is_within) return;
    const std::size_t from = byte_of(start);
    text = std::string_view(self).substr(from, byte_of(stop) - from);
  }
};

/// startswith and endswith, with one string or any of several.
Value has_affix(const MethodCall& call, bool at_start) {
  const Value& affix = *call.bound[0];
  const bool is_tuple = affix.sequence() && affix.sequence()->is_tuple();
  const Span span(call, 1);
  for (const Value& option : is_tuple ? affix.sequence()->items : std::vector<Value>{affix}) {
    if (!option.text())
      throw invalid("{}() needs a string, not a {}", call.name, option.type_name());
    if (span.is_within &&
        (at_start ? span.text.starts_with(*option.text()) : span.text.ends_with(*option.text())))
      return true;
  }
  return false;
}

/// find, rfind, index and rindex, which differ in their result if nothing is found.
Value find(const MethodCall& call, bool from_right, bool must_be_there) {
  const std::string& needle = call.text(0);
  const Span span(call, 1);
  const auto at = from_right ? span.text.rfind(needle) : span.text.find(needle);
  if (!span.is_within || at == span.text.npos) {
    if (must_be_there) throw invalid("{}(): there is no '{}' in the string", call.name, needle);
    return std::int64_t{-1};
  }
  return span.characters_before +
         static_cast<std::int64_t>(text::count_code_points(span.text.substr(0, at)));
}

Value count(const MethodCall& call) {
  const std::string& needle = call.text(0);
  const Span span(call, 1);
  if (!span.is_within) return std::int64_t{0};
  if (needle.empty()) return static_cast<std::int64_t>(text::count_code_points(span.text) + 1);
  std::int64_t found = 0;
  for (auto at = span.text.find(needle); at != span.text.npos;
       at = span.text.find(needle, at + needle.size()))
    ++found;
  return found;
}

Value join(const MethodCall& call) {
  std::string out;
  bool is_first = true;
  for (const Value& item : call.interpreter.items_of(*call.bound[0])) {
    if (!item.text()) throw invalid("join() needs strings, not a {}", item.type_name());
    out.append(is_first ? "" : call.self()).append(*item.text());
    check_text_size(out.size());
    is_first = false;
  }
  return out;
}

Value replace(const MethodCall& call) {
  return replaced(call.self(), call.text(0), call.text(1), call.bound.integer(2, -1));
}

Value format(const MethodCall& call) {
  return format_braces(call.interpreter, call.self(), call.arguments);
}

Value format_map(const MethodCall& call) {
  Arguments values;
  if (!call.bound[0]->dict()) throw invalid("format_map() needs a dict");
  for (const auto& [key, value] : call.bound[0]->dict()->entries)
    if (key.text()) values.named.emplace_back(*key.text(), value);
  return format_braces(call.interpreter, call.self(), values);
}

Value pad(const MethodCall& call, char align) {
  const std::u32string fill = call.bound[1] ? text::to_code_points(call.text(1)) : U" ";
  if (fill.size() != 1) throw invalid("{}() fills with one character", call.name);
  return padded(call.self(), call.bound[0]->integer(), fill[0], align);
}

Value fill_zeros(const MethodCall& call) {
  const std::string& text = call.self();
  const std::size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  return text.substr(0, sign) + padded(text.substr(sign),
                                       call.bound[0]->integer() - static_cast<std::int64_t>(sign),
                                       U'0', '>');
}

Value expand_tabs(const MethodCall& call) {
  const std::int64_t size = call.bound.integer(0, 8);
  std::string out;
  std::int64_t column = 0;
  for (const char c : call.characters()) {
    if (c == '\t' && size > 0) {
      const std::int64_t spaces = size - column % size;
      check_text_size(out.size() + static_cast<std::size_t>(spaces));
      out.append(static_cast<std::size_t>(spaces), ' ');
      column += spaces;
    } else if (c != '\t') {
      out += c;
      const bool begins_character = (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      column = c == '\n' || c == '\r' ? 0 : column + (begins_character ? 1 : 0);
    }
  }
  return out;
}

Value strip_ends(const MethodCall& call, bool left, bool right) {
  return strip(call.self(), call.bound[0], left, right);
}

Value remove_prefix(const MethodCall& call) {
  const std::string& prefix = call.text(0);
  return call.self().substr(call.self().starts_with(prefix) ? prefix.size() : 0);
}

Value remove_suffix(const MethodCall& call) {
  const std::string& suffix = call.text(0);
  return call.self().substr(
      0, call.self().size() - (call.self().ends_with(suffix) ? suffix.size() : 0));
}

template <bool (*holds)(char32_t)>
Value all_are(const MethodCall& call) {
  const std::u32string characters = text::to_code_points(call.characters());
  return !characters.empty() && std::all_of(characters.begin(), characters.end(), holds);
}

bool is_ascii(char32_t c) { return c < 0x80; }

Value is_numeric(const MethodCall& call) {
  for (const char32_t c : text::to_code_points(call.characters()))
    if (c > 0x7F && text::is_alpha(c))
      throw Failure{ErrorCode::unsupported, "isnumeric() of letters that may be numerals"};
  return all_are<text::is_numeric>(call);
}

/// True for an empty or printable text: unlike the other tests, this one holds for "".
Value is_printable(const MethodCall& call) {
  return call.self().empty() || all_are<text::is_printable>(call).is_true();
}

Value is_lower(const MethodCall& call) { return has_case(call.characters(), false); }
Value is_upper(const MethodCall& call) { return has_case(call.characters(), true); }

/// str.istitle(): upper case only after characters without case, lower case only after those with
/// it.
Value is_title(const MethodCall& call) {
  bool follows_case = false, has_any = false;
  for (const char32_t c : text::to_code_points(call.characters())) {
    const bool begins = text::is_upper(c) || text::is_title(c), goes_on = text::is_lower(c);
    if ((begins && follows_case) || (goes_on && !follows_case)) return false;
    follows_case = begins || goes_on;
    has_any |= follows_case;
  }
  return has_any;
}

template <std::string (*map)(std::string_view)>
Value mapped(const MethodCall& call) {
  return map(call.characters());
}

constexpr MethodRow rows[] = {
    {"capitalize", "/", mapped<text::capitalize>},
    {"center", "/width fill=", [](const MethodCall& call) { return pad(call, '^'); }, true},
    {"count", "/sub start= end=", count},
    {"endswith",
     "/suffix start= end=", [](const MethodCall& call) { return has_affix(call, false); }},
    {"expandtabs", "tabsize=", expand_tabs},
    {"find", "/sub start= end=", [](const MethodCall& call) { return find(call, false, false); }},
    {"format", "*", format, true},
    {"format_map", "/mapping", format_map, true},
    {"index", "/sub start= end=", [](const MethodCall& call) { return find(call, false, true); }},
    {"isalnum", "/", all_are<text::is_alnum>},
    {"isalpha", "/", all_are<text::is_alpha>},
    {"isascii", "/",
     [](const MethodCall& call) -> Value {
       return call.self().empty() || all_are<is_ascii>(call).is_true();
     }},
    {"isdecimal", "/", all_are<text::is_decimal>},
    {"isdigit", "/", all_are<text::is_digit>},
    {"islower", "/", is_lower},
    {"isnumeric", "/", is_numeric},
    {"isprintable", "/", is_printable},
    {"isspace", "/", all_are<text::is_python_space>},
    {"istitle", "/", is_title},
    {"isupper", "/", is_upper},
    {"join", "/iterable", join, true},
    {"ljust", "/width fill=", [](const MethodCall& call) { return pad(call, '<'); }, true},
    {"lower", "/", mapped<text::to_lower>},
    {"lstrip", "/chars=", [](const MethodCall& call) { return strip_ends(call, true, false); }},
    {"partition", "/sep", [](const MethodCall& call) { return partition(call, false); }, true},
    {"removeprefix", "/prefix", remove_prefix},
    {"removesuffix", "/suffix", remove_suffix},
    {"replace", "/old new count=", replace, true},
    {"rfind", "/sub start= end=", [](const MethodCall& call) { return find(call, true, false); }},
    {"rindex", "/sub start= end=", [](const MethodCall& call) { return find(call, true, true); }},
    {"rjust", "/width fill=", [](const MethodCall& call) { return pad(call, '>'); }, true},
    {"rpartition", "/sep", [](const MethodCall& call) { return partition(call, true); }, true},
    {"rsplit", "sep= maxsplit=", split_from_right},
    {"rstrip", "/chars=", [](const MethodCall& call) { return strip_ends(call, false, true); }},
    {"split", "sep= maxsplit=", split},
    {"splitlines", "keepends=", split_lines},
    {"startswith",
     "/prefix start= end=", [](const MethodCall& call) { return has_affix(call, true); }},
    {"strip", "/chars=", [](const MethodCall& call) { return strip_ends(call, true, true); }},
    {"swapcase", "/", mapped<text::swap_case>},
    {"title", "/", mapped<text::to_title>},
    {"upper", "/", mapped<text::to_upper>},
    {"zfill", "/width", fill_zeros},
};

}  // namespace

std::span<const MethodRow> text_methods() { return rows; }

}  // namespace troupe::jinja
