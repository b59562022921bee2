#include "models/text/jinja/representation.hpp"

#include <algorithm>
#include <cmath>

#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/loop.hpp"
#include "models/text/unicode/case_mapping.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

std::string escaped_for_python(char32_t c) {
  if (c == U'\n') return "\\n";
  if (c == U'\r') return "\\r";
  if (c == U'\t') return "\\t";
  const auto code = static_cast<std::uint32_t>(c);
  if (code < 0x100) return fmt::format("\\x{:02x}", code);
  return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

std::string quoted_for_python(const std::string& text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = text::next_code_point(text, at);
    if (c == static_cast<char32_t>(quote) || c == U'\\') {
      out.append({'\\', static_cast<char>(c)});
    } else if (text::is_printable(c)) {
      text::append_code_point(c, out);
    } else {
      out += escaped_for_python(c);
    }
  }
  return out += quote;
}

void append_utf16_escape(char32_t c, std::string& out) {
  const auto append = [&](std::uint32_t unit) {
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[unit >> shift & 15];
  };
  const auto code = static_cast<std::uint32_t>(c);
  if (code >= 0x10000) {
    append(0xD800 + ((code - 0x10000) >> 10));
    append(0xDC00 + (code & 0x3FF));
  } else {
    append(code);
  }
}

std::string quoted_for_json(const std::string& text, bool ensure_ascii) {
  constexpr std::string_view specials = "\"\\\n\r\t\b\f", letters = "\"\\nrtbf";
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = text::next_code_point(text, at);
    const auto special = c < 0x80 ? specials.find(static_cast<char>(c)) : specials.npos;
    if (special != specials.npos) {
      out.append({'\\', letters[special]});
    } else if (c < 0x20 || (ensure_ascii && c > 0x7E)) {
      append_utf16_escape(c, out);
    } else {
      text::append_code_point(c, out);
    }
  }
  return out += '"';
}

/// json.dumps step by step.
struct JsonWriter {
  const JsonStyle& style;
  std::string out;

  void break_line(int depth) {
    if (!style.indent) return;
    out += '\n';
    for (int i = 0; i < depth; ++i) out += *style.indent;
  }

  void separate(bool is_first, int depth) {
    if (!is_first) out += style.item_separator;
    break_line(depth);
    check_text_size(out.size());
  }

  std::string key(const Value& key) const {
    if (key.text()) return *key.text();
    if (!key.is_number() && !key.is_none())
      throw invalid("a {} cannot be a key in JSON", key.type_name());
    JsonWriter writer{style, ""};
    writer.write(key, 0);
    return std::move(writer.out);
  }

  void write_sequence(const Sequence& sequence, int depth) {
    out += '[';
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      separate(i == 0, depth + 1);
      write(sequence.items[i], depth + 1);
    }
    if (!sequence.items.empty()) break_line(depth);
    out += ']';
  }

  void write_dict(const Dict& dict, int depth) {
    auto entries = dict.entries;
    if (style.sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first.less_than(b.first); });
    out += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      separate(i == 0, depth + 1);
      out += quoted_for_json(key(entries[i].first), style.ensure_ascii) + style.key_separator;
      write(entries[i].second, depth + 1);
    }
    if (!entries.empty()) break_line(depth);
    out += '}';
  }

  void write(const Value& value, int depth) {
    if (const Sequence* list = value.sequence(); list && (list->is_list() || list->is_tuple())) {
      write_sequence(*list, depth);
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict, depth);
    } else if (value.text()) {
      out += quoted_for_json(*value.text(), style.ensure_ascii);
    } else if (value.is_none()) {
      out += "null";
    } else if (const bool* boolean = value.get_if<bool>()) {
      out += *boolean ? "true" : "false";
    } else if (value.is_number()) {
      const std::string text = value.to_string();
      out += text == "nan"    ? "NaN"
             : text == "inf"  ? "Infinity"
             : text == "-inf" ? "-Infinity"
                              : text;
    } else {
      throw invalid("an object of type {} cannot be written as JSON", value.type_name());
    }
  }
};

/// The items in repr() form, separated by commas.
std::string listed(const std::vector<Value>& items, int depth) {
  std::string out;
  for (const Value& item : items) {
    out.append(out.empty() ? "" : ", ").append(item.repr(depth + 1));
    check_text_size(out.size());
  }
  return out;
}

std::string shown_sequence(const Sequence& sequence, std::string_view type, int depth) {
  if (sequence.kind == Sequence::Kind::range) return sequence.shown;
  const std::string items = listed(sequence.items, depth);
  if (sequence.is_list()) return fmt::format("[{}]", items);
  if (sequence.is_tuple())
    return fmt::format("({}{})", items, sequence.items.size() == 1 ? "," : "");
  return fmt::format("{}([{}])", type, items);
}

std::string shown_dict(const Dict& dict, int depth) {
  std::string out;
  for (const auto& [key, value] : dict.entries) {
    out.append(out.empty() ? "" : ", ").append(key.repr(depth + 1)).append(": ");
    out.append(value.repr(depth + 1));
    check_text_size(out.size());
  }
  return fmt::format("{{{}}}", out);
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == text.npos) text += ".0";
  return text;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer{style, ""};
  writer.write(value, 0);
  return std::move(writer.out);
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (c == '"') {
      out += "&#34;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Value::to_string() const {
  if (is_undefined()) return "";
  return text() ? *text() : repr();
}

std::string Value::repr(int depth) const {
  check_value_depth(depth);
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (const bool* value = get_if<bool>()) return *value ? "True" : "False";
  if (const auto* value = get_if<std::int64_t>()) return fmt::format("{}", *value);
  if (const double* value = get_if<double>()) return float_text(*value);
  if (is_markup()) return fmt::format("Markup({})", quoted_for_python(*text()));
  if (text()) return quoted_for_python(*text());
  if (sequence()) return shown_sequence(*sequence(), type_name(), depth);
  if (dict()) return shown_dict(*dict(), depth);
  if (name_space()) return fmt::format("<Namespace {}>", shown_dict(name_space()->fields, depth));
  if (loop()) return fmt::format("<LoopContext {}/{}>", loop()->at + 1, loop()->items.size());
  if (function() && function()->is_macro) return fmt::format("<Macro '{}'>", function()->name);
  // Python prints an address here.
  throw Failure{ErrorCode::unsupported, fmt::format("printing a {}", type_name())};
}

}  // namespace troupe::jinja
