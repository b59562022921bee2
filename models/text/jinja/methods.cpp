// Python's methods of strings, lists and dicts.
#include <algorithm>
#include <span>

#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/method_call.hpp"
#include "models/text/jinja/text_functions.hpp"

namespace troupe::jinja {
namespace {

Value dict_get(const MethodCall& call) {
  call.bound[0]->require_hashable();
  const Value* found = call.object.dict()->find(*call.bound[0]);
  return found ? *found : call.bound[1] ? *call.bound[1] : Value();
}

/// keys(), values() and items().
Value dict_view(const MethodCall& call) {
  using Kind = Sequence::Kind;
  const Kind kind = call.name == "keys"     ? Kind::dict_keys
                    : call.name == "values" ? Kind::dict_values
                                            : Kind::dict_items;
  call.interpreter.charge_items((kind == Kind::dict_items ? 3 : 1) * call.object.count());
  std::vector<Value> items;
  for (const auto& [key, value] : call.object.dict()->entries)
    items.push_back(kind == Kind::dict_keys     ? key
                    : kind == Kind::dict_values ? value
                                                : Value::tuple({key, value}));
  return Value::sequence(kind, std::move(items));
}

Value same(const MethodCall& call) { return call.object; }  // values are immutable

Value list_index(const MethodCall& call) {
  const auto& items = call.object.sequence()->items;
  const auto size = static_cast<std::int64_t>(items.size());
  const auto bound = [&](std::size_t i, std::int64_t otherwise) {
    const std::int64_t at = call.bound.integer(i, otherwise);
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const std::int64_t end = bound(2, size);
  call.interpreter.charge_walk(call.object);
  for (std::int64_t i = bound(1, 0); i < end; ++i)
    if (items[static_cast<std::size_t>(i)].equals(*call.bound[0])) return i;
  throw invalid("index() of a value that is not in the list");
}

Value list_count(const MethodCall& call) {
  call.interpreter.charge_walk(call.object);
  const auto& items = call.object.sequence()->items;
  return static_cast<std::int64_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return item.equals(*call.bound[0]); }));
}

constexpr MethodRow dict_rows[] = {
    {"copy", "/", same},      {"get", "/key default=", dict_get}, {"items", "/", dict_view},
    {"keys", "/", dict_view}, {"values", "/", dict_view},
};

constexpr MethodRow sequence_rows[] = {
    {"copy", "/", same},
    {"count", "/value", list_count},
    {"index", "/value start= stop=", list_index},
};

// Python's mutating methods, which templates may not call.
constexpr std::string_view changes_of_lists[] = {"append", "clear",  "extend",  "insert",
                                                 "pop",    "remove", "reverse", "sort"};
constexpr std::string_view changes_of_dicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
// Methods that are not supported here.
constexpr std::string_view other_text_methods[] = {"casefold", "encode", "isidentifier",
                                                   "maketrans", "translate"};

bool holds(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const MethodRow* find_method(const Value& object, std::string_view name) {
  std::span<const MethodRow> rows;
  if (object.text()) rows = text_methods();
  if (object.dict()) rows = dict_rows;
  const Sequence* sequence = object.sequence();
  if (sequence && !sequence->is_view()) rows = sequence_rows;
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const MethodRow& row) { return row.name == name; });
  const bool is_missing =
      found == rows.end() || (name == "copy" && sequence && !sequence->is_list());
  return is_missing ? nullptr : &*found;
}

/// The result of a method of Markup is Markup again.
Value as_markup(const Value& value) {
  if (value.text()) return Value::markup(*value.text());
  if (!value.sequence()) return value;
  std::vector<Value> items;
  for (const Value& item : value.sequence()->items) items.push_back(as_markup(item));
  return Value::sequence(value.sequence()->kind, std::move(items));
}

}  // namespace

bool would_change(const Value& object, std::string_view name) {
  const bool is_list = object.sequence() && object.sequence()->is_list();
  return (object.dict() && holds(changes_of_dicts, name)) ||
         (is_list && holds(changes_of_lists, name));
}

bool has_method(const Value& object, std::string_view name) {
  return find_method(object, name) || would_change(object, name) ||
         (object.text() && holds(other_text_methods, name)) ||
         (object.dict() && name == "fromkeys");
}

Value call_method(Interpreter& interpreter, const Value& object, std::string_view name,
                  const Arguments& arguments) {
  const MethodRow* method = find_method(object, name);
  if (!method) throw Failure{ErrorCode::unsupported, fmt::format("the method '{}'", name)};
  if (object.text()) interpreter.charge_text(object.text()->size());
  if (object.dict()) interpreter.charge(object.dict()->entries.size() / 64);
  if (object.is_markup() && method->mixes_texts)
    throw Failure{ErrorCode::unsupported,
                  fmt::format("{}() of text that is marked as escaped", name)};
  static const Arguments none;
  const bool takes_any = method->parameters == "*";
  const Bound bound(name, takes_any ? "" : method->parameters, takes_any ? none : arguments);
  Value result = method->apply({interpreter, name, object, arguments, bound});
  return object.is_markup() ? as_markup(result) : result;
}

}  // namespace troupe::jinja
