#include <algorithm>

#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/unicode/characters.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

/// One call of a method of `object`.
struct Invocation {
  std::string_view name;
  const Value& object;
  const Arguments& arguments;

  const std::string& self() const { return *object.text(); }
  const Value* find(std::size_t position, std::string_view key) const {
    return arguments.find(position, key);
  }
  const std::string& text_argument(std::size_t position, std::string_view key) const {
    const Value* found = find(position, key);
    if (found == nullptr || found->text() == nullptr)
      throw invalid("{}() needs a string as argument {}", name, position + 1);
    return *found->text();
  }
  std::int64_t integer_argument(std::size_t position, std::string_view key,
                                std::int64_t otherwise) const {
    const Value* found = find(position, key);
    return found ? found->integer() : otherwise;
  }
};

std::string replaced(const std::string& text, const std::string& from, const std::string& to,
                     std::int64_t most) {
  if (from.empty()) throw invalid("replace() of an empty string");
  std::string out;
  std::size_t copied = 0;
  for (auto at = text.find(from); at != text.npos && most != 0;
       at = text.find(from, copied), --most) {
    out.append(text, copied, at - copied).append(to);
    check_text_size(out.size());
    copied = at + from.size();
  }
  return out.append(text, copied);
}

/// str.split() without a separator: the words between whitespace.
std::vector<Value> split_words(const std::string& text, std::int64_t most) {
  std::vector<Value> parts;
  std::size_t word = text.npos, at = 0;
  while (at < text.size()) {
    const std::size_t here = at;
    const bool is_space = text::is_python_space(text::next_code_point(text, at));
    if (!is_space && word == text.npos) {
      if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
        parts.emplace_back(text.substr(here));
        return parts;
      }
      word = here;
    } else if (is_space && word != text.npos) {
      parts.emplace_back(text.substr(word, here - word));
      word = text.npos;
    }
  }
  if (word != text.npos) parts.emplace_back(text.substr(word));
  return parts;
}

Value split(const Invocation& call) {
  const Value* separator = call.find(0, "sep");
  const std::int64_t most = call.integer_argument(1, "maxsplit", -1);
  if (separator == nullptr || separator->is_none())
    return Value::list(split_words(call.self(), most));
  const std::string& by = call.text_argument(0, "sep");
  if (by.empty()) throw invalid("split() by an empty string");
  std::vector<Value> parts;
  std::size_t from = 0;
  for (auto at = call.self().find(by);
       at != std::string::npos && (most < 0 || static_cast<std::int64_t>(parts.size()) < most);
       at = call.self().find(by, from)) {
    parts.emplace_back(call.self().substr(from, at - from));
    from = at + by.size();
  }
  parts.emplace_back(call.self().substr(from));
  return Value::list(std::move(parts));
}

Value split_from_right(const Invocation& call) {
  const std::int64_t most = call.integer_argument(1, "maxsplit", -1);
  if (most < 0) return split(call);
  const std::string& by = call.text_argument(0, "sep");
  if (by.empty()) throw invalid("rsplit() by an empty string");
  std::vector<Value> parts;
  std::string_view rest = call.self();
  while (static_cast<std::int64_t>(parts.size()) < most) {
    const auto at = rest.rfind(by);
    if (at == rest.npos) break;
    parts.emplace_back(rest.substr(at + by.size()));
    rest = rest.substr(0, at);
  }
  parts.emplace_back(rest);
  std::reverse(parts.begin(), parts.end());
  return Value::list(std::move(parts));
}

Value split_lines(const Invocation& call) {
  std::vector<Value> lines;
  std::string_view rest = call.self();
  while (!rest.empty()) {
    const auto end = rest.find_first_of("\n\r");
    lines.emplace_back(rest.substr(0, end));
    if (end == rest.npos) break;
    rest = rest.substr(end + (rest.substr(end, 2) == "\r\n" ? 2 : 1));
  }
  return Value::list(std::move(lines));
}

/// startswith and endswith, of one string or any of several.
Value has_affix(const Invocation& call, bool at_start) {
  const Value* affix = call.find(0, "prefix");
  if (affix == nullptr) throw invalid("{}() needs a string", call.name);
  for (const Value& option : affix->sequence() ? affix->iterate() : std::vector<Value>{*affix}) {
    if (!option.text())
      throw invalid("{}() needs a string, not a {}", call.name, option.type_name());
    if (at_start ? call.self().starts_with(*option.text()) : call.self().ends_with(*option.text()))
      return true;
  }
  return false;
}

Value find(const Invocation& call, bool from_right) {
  const std::string& needle = call.text_argument(0, "sub");
  const auto at = from_right ? call.self().rfind(needle) : call.self().find(needle);
  if (at == std::string::npos) return std::int64_t{-1};
  return static_cast<std::int64_t>(
      text::count_code_points(std::string_view(call.self()).substr(0, at)));
}

Value count(const Invocation& call) {
  const std::string& needle = call.text_argument(0, "sub");
  std::int64_t found = 0;
  if (needle.empty()) return static_cast<std::int64_t>(text::count_code_points(call.self()) + 1);
  for (auto at = call.self().find(needle); at != std::string::npos;
       at = call.self().find(needle, at + needle.size()))
    ++found;
  return found;
}

Value capitalize(const Invocation& call) {
  std::size_t behind_first = 0;
  if (call.self().empty()) return "";
  text::next_code_point(call.self(), behind_first);
  return text::to_upper(call.self().substr(0, behind_first)) +
         text::to_lower(call.self().substr(behind_first));
}

Value join(const Invocation& call) {
  const Value* items = call.find(0, "iterable");
  if (items == nullptr) throw invalid("join() needs a list");
  std::string out;
  bool is_first = true;
  for (const Value& item : items->iterate()) {
    if (!item.text()) throw invalid("join() needs strings, not a {}", item.type_name());
    out.append(is_first ? "" : call.self()).append(*item.text());
    check_text_size(out.size());
    is_first = false;
  }
  return out;
}

Value all_are(const Invocation& call, bool (*holds)(char32_t)) {
  const std::u32string characters = text::to_code_points(call.self());
  return !characters.empty() && std::all_of(characters.begin(), characters.end(), holds);
}

/// str.title(): a word begins after anything that is no letter.
std::string title_case(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = text::next_code_point(text, at);
    text::append_code_point(in_word ? text::to_lower(c) : text::to_upper(c), out);
    in_word = text::to_lower(c) != text::to_upper(c);
  }
  return out;
}

using Method = Value (*)(const Invocation&);
constexpr std::pair<std::string_view, Method> text_methods[] = {
    {"capitalize", capitalize},
    {"count", count},
    {"endswith", [](const Invocation& call) { return has_affix(call, false); }},
    {"find", [](const Invocation& call) { return find(call, false); }},
    {"isdigit",
     [](const Invocation& call) {
       return all_are(call, [](char32_t c) { return c >= '0' && c <= '9'; });
     }},
    {"isspace", [](const Invocation& call) { return all_are(call, text::is_python_space); }},
    {"join", join},
    {"lower", [](const Invocation& call) -> Value { return text::to_lower(call.self()); }},
    {"lstrip",
     [](const Invocation& call) -> Value {
       return strip(call.self(), call.find(0, "chars"), true, false);
     }},
    {"removeprefix",
     [](const Invocation& call) -> Value {
       const std::string& prefix = call.text_argument(0, "prefix");
       return call.self().substr(call.self().starts_with(prefix) ? prefix.size() : 0);
     }},
    {"removesuffix",
     [](const Invocation& call) -> Value {
       const std::string& suffix = call.text_argument(0, "suffix");
       return call.self().substr(
           0, call.self().size() - (call.self().ends_with(suffix) ? suffix.size() : 0));
     }},
    {"replace",
     [](const Invocation& call) -> Value {
       return replaced(call.self(), call.text_argument(0, "old"), call.text_argument(1, "new"),
                       call.integer_argument(2, "count", -1));
     }},
    {"rfind", [](const Invocation& call) { return find(call, true); }},
    {"rsplit", split_from_right},
    {"rstrip",
     [](const Invocation& call) -> Value {
       return strip(call.self(), call.find(0, "chars"), false, true);
     }},
    {"split", split},
    {"splitlines", split_lines},
    {"startswith", [](const Invocation& call) { return has_affix(call, true); }},
    {"strip",
     [](const Invocation& call) -> Value {
       return strip(call.self(), call.find(0, "chars"), true, true);
     }},
    {"title", [](const Invocation& call) -> Value { return title_case(call.self()); }},
    {"upper", [](const Invocation& call) -> Value { return text::to_upper(call.self()); }},
};

constexpr std::pair<std::string_view, Method> dict_methods[] = {
    {"get",
     [](const Invocation& call) -> Value {
       const Value *key = call.find(0, "key"), *fallback = call.find(1, "default");
       const Value* found = key ? call.object.dict()->find(*key) : nullptr;
       return found ? *found : fallback ? *fallback : Value();
     }},
    {"items",
     [](const Invocation& call) -> Value {
       std::vector<Value> pairs;
       for (const auto& [key, value] : call.object.dict()->entries)
         pairs.push_back(Value::tuple({key, value}));
       return Value::list(std::move(pairs));
     }},
    {"keys", [](const Invocation& call) -> Value { return Value::list(call.object.iterate()); }},
    {"values",
     [](const Invocation& call) -> Value {
       std::vector<Value> values;
       for (const auto& [key, value] : call.object.dict()->entries) values.push_back(value);
       return Value::list(std::move(values));
     }},
};

// Python's methods that change their object; templates may not.
constexpr std::string_view changing_methods[] = {"append", "extend", "insert", "remove",
                                                 "pop",    "clear",  "update", "setdefault",
                                                 "sort",   "reverse"};

const Method* find_method(const Value& object, std::string_view name) {
  const auto search = [&](const auto& methods) -> const Method* {
    for (const auto& [known, method] : methods)
      if (known == name) return &method;
    return nullptr;
  };
  return object.text() ? search(text_methods) : object.dict() ? search(dict_methods) : nullptr;
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

bool has_method(const Value& object, std::string_view name) {
  if (find_method(object, name)) return true;
  const bool can_change = object.dict() || (object.sequence() && !object.sequence()->is_tuple);
  return can_change && std::find(std::begin(changing_methods), std::end(changing_methods), name) !=
                           std::end(changing_methods);
}

Value call_method(Interpreter& interpreter, const Value& object, std::string_view name,
                  const Arguments& arguments) {
  const Method* method = find_method(object, name);
  if (method == nullptr)
    throw invalid("{}() would change a {}, which a template may not", name, object.type_name());
  if (object.text()) interpreter.charge_text(object.text()->size());
  if (object.dict()) interpreter.charge(object.dict()->entries.size() / 8);
  return (*method)({name, object, arguments});
}

}  // namespace troupe::jinja
