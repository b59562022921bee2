#include <algorithm>

#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/filter_use.hpp"
#include "models/text/jinja/format.hpp"
#include "models/text/jinja/operators.hpp"
#include "models/text/jinja/representation.hpp"
#include "models/text/jinja/text_functions.hpp"
#include "models/text/unicode/case_mapping.hpp"
#include "models/text/unicode/characters.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

const std::string& own_text(const FilterUse& use) {
  require_defined(use.operand);
  if (!use.operand.text()) throw invalid("a string is needed, not a {}", use.operand.type_name());
  return *use.operand.text();
}

Value upper(const FilterUse& use) { return use.as_operand(text::to_upper(use.characters())); }
Value lower(const FilterUse& use) { return use.as_operand(text::to_lower(use.characters())); }
Value capitalize(const FilterUse& use) {
  return use.as_operand(text::capitalize(use.characters()));
}

/// Unlike str.title(), begins a word only after a space, a hyphen or an opening bracket.
Value title(const FilterUse& use) {
  const auto separates = [](char32_t c) {
    return text::is_python_space(c) ||
           std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
  };
  const std::u32string text = text::to_code_points(use.characters());
  std::string out;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t word = static_cast<std::size_t>(
        std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), separates) -
        text.begin());
    const std::size_t to = static_cast<std::size_t>(
        std::find_if(text.begin() + static_cast<std::ptrdiff_t>(word), text.end(), separates) -
        text.begin());
    const std::u32string_view all = text;
    out += text::to_utf8(all.substr(from, word - from));
    out += text::to_upper(text::to_utf8(all.substr(word, word < to ? 1 : 0)));
    out += text::to_lower(
        text::to_utf8(all.substr(std::min(word + 1, to), to - std::min(word + 1, to))));
    from = to;
  }
  return use.as_operand(std::move(out));
}

Value trim(const FilterUse& use) {
  return use.as_operand(strip(use.text(), use.bound[0], true, true));
}

Value replace(const FilterUse& use) {
  const Value* count = use.bound[2];
  return replaced(use.text(), use.bound[0]->to_string(), use.bound[1]->to_string(),
                  count && !count->is_none() ? count->integer() : -1);
}

Value safe(const FilterUse& use) { return Value::markup(use.text()); }

Value escape(const FilterUse& use) {
  return use.operand.is_markup() ? use.operand : Value::markup(escape_html(use.text()));
}

Value force_escape(const FilterUse& use) { return Value::markup(escape_html(use.text())); }

Value format(const FilterUse& use) {
  const Arguments& given = use.arguments;
  if (!given.positional.empty() && !given.named.empty())
    throw invalid("format takes positional or named arguments, not both");
  const Value format = use.operand.text() ? use.operand : Value(use.text());
  if (given.named.empty())
    return format_printf(use.interpreter, format, Value::tuple(given.positional));
  Dict values;
  for (const auto& [name, value] : given.named) values.set(Value(name), value);
  return format_printf(use.interpreter, format, values);
}

Value center(const FilterUse& use) {
  constexpr std::int64_t usual_width = 80;
  return use.as_operand(padded(use.text(), use.bound.integer(0, usual_width), U' ', '^'));
}

Value indent(const FilterUse& use) {
  constexpr std::int64_t usual_width = 4, widest = 1'000'000;
  const Value* width = use.bound[0];
  const std::string margin = width && width->text()
                                 ? *width->text()
                                 : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                                   use.bound.integer(0, usual_width), 0, widest)),
                                               ' ');
  const bool blank_too = use.bound.is_true(2);
  const std::string text = own_text(use) + "\n";
  std::string out = use.bound.is_true(1) ? margin : "";
  bool is_first = true;
  for (const std::string_view line : lines_of(text, false)) {
    if (!is_first) {
      out += '\n';
      if (blank_too || !line.empty()) out += margin;
    }
    out += line;
    check_text_size(out.size());
    is_first = false;
  }
  return use.as_operand(std::move(out));
}

Value truncate(const FilterUse& use) {
  constexpr std::int64_t usual_length = 255, usual_leeway = 5;
  const std::string end = use.bound[2] ? use.bound[2]->to_string() : "...";
  const std::int64_t length = use.bound.integer(0, usual_length);
  const Value* given_leeway = use.bound[3];
  const std::int64_t leeway =
      given_leeway && !given_leeway->is_none() ? given_leeway->integer() : usual_leeway;
  const auto end_size = static_cast<std::int64_t>(text::count_code_points(end));
  if (length < end_size) throw invalid("truncate to a length below that of '{}'", end);
  if (leeway < 0) throw invalid("truncate with a leeway below 0");
  const auto size = static_cast<std::int64_t>(use.operand.count());
  const bool has_length = use.operand.text() || use.operand.sequence() || use.operand.dict() ||
                          use.operand.is_undefined();
  if (has_length && (size <= length || size - length <= leeway)) return use.operand;
  const std::u32string text = text::to_code_points(own_text(use));
  std::string kept = text::to_utf8(
      std::u32string_view(text).substr(0, static_cast<std::size_t>(length - end_size)));
  if (!use.bound.is_true(1)) kept = kept.substr(0, kept.rfind(' '));
  return use.as_operand(kept + (use.operand.is_markup() ? escape_html(end) : end));
}

Value word_count(const FilterUse& use) {
  std::int64_t words = 0;
  bool in_word = false;
  const std::string text = use.characters();
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = text::next_code_point(text, at);
    const bool is_part = c == U'_' || text::is_alnum(c);
    words += is_part && !in_word ? 1 : 0;
    in_word = is_part;
  }
  return words;
}

constexpr FilterRow rows[] = {
    {"capitalize", "", capitalize},
    {"center", "width=", center},
    {"e", "", escape},
    {"escape", "", escape},
    {"forceescape", "", force_escape},
    {"format", "*", format},
    {"indent", "width= first= blank=", indent},
    {"lower", "", lower},
    {"replace", "old new count=", replace},
    {"safe", "", safe},
    {"title", "", title},
    {"trim", "chars=", trim},
    {"truncate", "length= killwords= end= leeway=", truncate},
    {"upper", "", upper},
    {"wordcount", "", word_count},
};

}  // namespace

std::span<const FilterRow> text_filters() { return rows; }

}  // namespace troupe::jinja
