#include "models/text/jinja/value.hpp"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "models/text/jinja/failure.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

constexpr int deepest_nesting = 200;

void check_depth(int depth) {
  if (depth > deepest_nesting) throw invalid("values nested more than {} deep", deepest_nesting);
}

Value value_of_json(const nlohmann::ordered_json& json, int depth) {
  check_depth(depth);
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::ordered_json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > INT64_MAX) return json.get<double>();
      return json.get<std::int64_t>();
    case nlohmann::ordered_json::value_t::number_integer:
      return json.get<std::int64_t>();
    case nlohmann::ordered_json::value_t::number_float:
      return json.get<double>();
    case nlohmann::ordered_json::value_t::string:
      return json.get<std::string>();
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(value_of_json(item, depth + 1));
      return Value::list(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items())
        dict.entries.emplace_back(key, value_of_json(item, depth + 1));
      return dict;
    }
    default:
      return {};
  }
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == text.npos) text += ".0";
  return text;
}

std::string quoted_for_python(const std::string& text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') {
      out.append({'\\', c});
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += c;
    }
  }
  return out += quote;
}

std::string quoted_for_json(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", c);
        } else {
          out += c;
        }
    }
  }
  return out += '"';
}

/// json.dumps step by step.
struct JsonWriter {
  int indent;
  bool sort_keys;
  std::string out;

  void break_line(int depth) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(depth), ' ');
  }

  void separate(bool is_first, int depth) {
    if (!is_first) out += indent < 0 ? ", " : ",";
    break_line(depth);
  }

  void write(const Value& value, int depth) {
    check_depth(depth);
    check_text_size(out.size());
    if (const Sequence* sequence = value.sequence()) {
      out += '[';
      for (std::size_t i = 0; i < sequence->items.size(); ++i) {
        separate(i == 0, depth + 1);
        write(sequence->items[i], depth + 1);
      }
      if (!sequence->items.empty()) break_line(depth);
      out += ']';
    } else if (const Dict* dict = value.dict()) {
      auto entries = dict->entries;
      if (sort_keys)
        std::stable_sort(entries.begin(), entries.end(),
                         [](const auto& a, const auto& b) { return a.first.less_than(b.first); });
      out += '{';
      for (std::size_t i = 0; i < entries.size(); ++i) {
        separate(i == 0, depth + 1);
        const Value& key = entries[i].first;
        out += quoted_for_json(key.text() ? *key.text() : key.to_json());
        out += ": ";
        write(entries[i].second, depth + 1);
      }
      if (!entries.empty()) break_line(depth);
      out += '}';
    } else if (value.text()) {
      out += quoted_for_json(*value.text());
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

}  // namespace

void check_text_size(std::size_t bytes) {
  if (bytes > longest_text_bytes)
    throw Failure{ErrorCode::resource_exhausted,
                  fmt::format("a text of more than {} MiB", longest_text_bytes >> 20)};
}

const Value* Dict::find(const Value& key) const {
  for (const auto& [name, value] : entries)
    if (name.equals(key)) return &value;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name.text() && *name.text() == key) return &value;
  return nullptr;
}

void Dict::set(const Value& key, Value value) {
  if (key.sequence() || key.dict()) throw invalid("a {} cannot be a key", key.type_name());
  for (auto& [name, old] : entries) {
    if (name.equals(key)) {
      old = std::move(value);
      return;
    }
  }
  entries.emplace_back(key, std::move(value));
}

const Value* Arguments::find(std::size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

Value::Value(std::string text) : form_(std::make_shared<const std::string>(std::move(text))) {
  check_text_size(this->text()->size());
}

Value::Value(Dict dict) : form_(std::make_shared<const Dict>(std::move(dict))) {}

Value Value::list(std::vector<Value> items) {
  return Form(std::make_shared<const Sequence>(Sequence{std::move(items), false}));
}

Value Value::tuple(std::vector<Value> items) {
  return Form(std::make_shared<const Sequence>(Sequence{std::move(items), true}));
}

Value Value::function(std::string name, decltype(Function::call) call) {
  return Form(std::make_shared<const Function>(Function{std::move(name), std::move(call)}));
}

Value Value::from_json(const nlohmann::ordered_json& json) { return value_of_json(json, 0); }

const std::string* Value::text() const {
  const auto* text = get_if<Text>();
  return text ? text->get() : nullptr;
}

const Sequence* Value::sequence() const {
  const auto* sequence = get_if<std::shared_ptr<const Sequence>>();
  return sequence ? sequence->get() : nullptr;
}

const Dict* Value::dict() const {
  const auto* dict = get_if<std::shared_ptr<const Dict>>();
  return dict ? dict->get() : nullptr;
}

Namespace* Value::name_space() const {
  const auto* name_space = get_if<std::shared_ptr<Namespace>>();
  return name_space ? name_space->get() : nullptr;
}

bool Value::is_integer() const { return get_if<bool>() || get_if<std::int64_t>(); }
bool Value::is_number() const { return is_integer() || get_if<double>(); }

std::int64_t Value::integer() const {
  if (const bool* value = get_if<bool>()) return *value;
  if (const auto* value = get_if<std::int64_t>()) return *value;
  throw invalid("an integer is needed, not a {}", type_name());
}

double Value::number() const {
  if (const double* value = get_if<double>()) return *value;
  if (is_integer()) return static_cast<double>(integer());
  throw invalid("a number is needed, not a {}", type_name());
}

bool Value::is_true() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (text()) return !text()->empty();
  if (sequence()) return !sequence()->items.empty();
  if (dict()) return !dict()->entries.empty();
  return true;
}

std::string_view Value::type_name() const {
  constexpr std::string_view names[] = {"Undefined", "NoneType", "bool", "int",       "float",
                                        "str",       "",         "dict", "namespace", "function"};
  if (sequence()) return sequence()->is_tuple ? "tuple" : "list";
  return names[form_.index()];
}

std::string Value::to_string() const {
  if (is_undefined()) return "";
  return text() ? *text() : repr();
}

std::string Value::repr(int depth) const {
  check_depth(depth);
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (const bool* value = get_if<bool>()) return *value ? "True" : "False";
  if (const auto* value = get_if<std::int64_t>()) return fmt::format("{}", *value);
  if (const double* value = get_if<double>()) return float_text(*value);
  if (text()) return quoted_for_python(*text());
  std::string out;
  if (const Sequence* list = sequence()) {
    for (const Value& item : list->items) {
      out.append(out.empty() ? "" : ", ").append(item.repr(depth + 1));
      check_text_size(out.size());
    }
    if (list->is_tuple) return "(" + out + (list->items.size() == 1 ? ",)" : ")");
    return "[" + out + "]";
  }
  if (const Dict* entries = dict()) {
    for (const auto& [key, value] : entries->entries) {
      out.append(out.empty() ? "" : ", ").append(key.repr(depth + 1)).append(": ");
      out.append(value.repr(depth + 1));
      check_text_size(out.size());
    }
    return "{" + out + "}";
  }
  return fmt::format("<{}>", type_name());
}

std::string Value::to_json(int indent, bool sort_keys) const {
  JsonWriter writer{indent, sort_keys, ""};
  writer.write(*this, 0);
  return std::move(writer.out);
}

std::vector<Value> Value::iterate() const {
  if (is_undefined()) return {};
  if (sequence()) return sequence()->items;
  std::vector<Value> items;
  if (dict()) {
    for (const auto& [key, value] : dict()->entries) items.push_back(key);
    return items;
  }
  if (!text()) throw invalid("a {} cannot be iterated over", type_name());
  for (std::size_t at = 0; at < text()->size();) {
    const std::size_t from = at;
    text::next_code_point(*text(), at);
    items.emplace_back(text()->substr(from, at - from));
  }
  return items;
}

bool Value::equals(const Value& other) const {
  if (is_integer() && other.is_integer()) return integer() == other.integer();
  if (is_number() && other.is_number()) return number() == other.number();
  if (form_.index() != other.form_.index()) return false;
  if (is_undefined() || is_none()) return true;
  if (text()) return *text() == *other.text();
  if (const Sequence *a = sequence(), *b = other.sequence(); a) {
    return a->is_tuple == b->is_tuple &&
           std::equal(a->items.begin(), a->items.end(), b->items.begin(), b->items.end(),
                      [](const Value& x, const Value& y) { return x.equals(y); });
  }
  if (const Dict *a = dict(), *b = other.dict(); a) {
    return a->entries.size() == b->entries.size() &&
           std::all_of(a->entries.begin(), a->entries.end(), [&](const auto& entry) {
             const Value* found = b->find(entry.first);
             return found && found->equals(entry.second);
           });
  }
  if (name_space()) return name_space() == other.name_space();
  return *get_if<std::shared_ptr<const Function>>() ==
         *other.get_if<std::shared_ptr<const Function>>();
}

bool Value::less_than(const Value& other) const {
  if (is_integer() && other.is_integer()) return integer() < other.integer();
  if (is_number() && other.is_number()) return number() < other.number();
  if (text() && other.text()) return *text() < *other.text();
  if (const Sequence *a = sequence(), *b = other.sequence(); a && b && a->is_tuple == b->is_tuple) {
    for (std::size_t i = 0; i < std::min(a->items.size(), b->items.size()); ++i)
      if (!a->items[i].equals(b->items[i])) return a->items[i].less_than(b->items[i]);
    return a->items.size() < b->items.size();
  }
  throw invalid("cannot order a {} and a {}", type_name(), other.type_name());
}

bool Value::contains(const Value& needle) const {
  if (is_undefined()) return false;
  if (text()) {
    if (!needle.text()) throw invalid("'in' a string needs a string, not a {}", needle.type_name());
    return text()->find(*needle.text()) != std::string::npos;
  }
  if (dict()) return dict()->find(needle) != nullptr;
  if (sequence()) {
    const auto& items = sequence()->items;
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& item) { return item.equals(needle); });
  }
  throw invalid("a {} holds nothing to look for", type_name());
}

}  // namespace troupe::jinja
