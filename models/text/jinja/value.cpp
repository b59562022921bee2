#include "models/text/jinja/value.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/loop.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

Value value_of_json(const nlohmann::ordered_json& json, int depth) {
  check_value_depth(depth);
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::ordered_json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > INT64_MAX)
        throw invalid("{} is an integer of more than 64 bits", json.get<std::uint64_t>());
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

Extent extent_above(const std::vector<Value>& items) {
  Extent extent;
  for (const Value& item : items) extent.add(item);
  return extent;
}

bool all_equal(const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Value& x, const Value& y) { return x.equals(y); });
}

}  // namespace

void check_value_depth(int depth) {
  if (depth > max_value_depth) throw invalid("values nested more than {} deep", max_value_depth);
}

void Extent::add(const Value& value) {
  const Extent held = value.extent();
  depth = std::max(depth, held.depth + 1);
  check_value_depth(depth);
  if (__builtin_add_overflow(weight, held.weight, &weight)) weight = SIZE_MAX;
}

void check_text_size(std::size_t bytes) {
  if (bytes > max_text_bytes)
    throw Failure{ErrorCode::resource_exhausted,
                  fmt::format("a text of more than {} MiB", max_text_bytes >> 20)};
}

void check_item_count(std::size_t count) {
  if (count > max_items)
    throw Failure{ErrorCode::resource_exhausted,
                  fmt::format("a list of more than {} items", max_items)};
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
  key.require_hashable();
  for (auto& [name, old] : entries) {
    if (name.equals(key)) {
      old = std::move(value);
      return;
    }
  }
  entries.emplace_back(key, std::move(value));
}

const Value* Iterator::take() {
  if (next < items.size()) return &items[next++];
  if (failure) throw *std::exchange(failure, std::nullopt);
  return nullptr;
}

const Value* Arguments::find_named(std::string_view name) const {
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

Value::Value(std::string text) : form_(std::make_shared<const std::string>(std::move(text))) {
  check_text_size(this->text()->size());
}

Value::Value(Dict dict) {
  dict.extent = {};
  for (const auto& [key, value] : dict.entries) {
    dict.extent.add(key);
    dict.extent.add(value);
  }
  form_ = std::make_shared<const Dict>(std::move(dict));
}

Value Value::markup(std::string text) {
  check_text_size(text.size());
  return Form(Markup{std::make_shared<const std::string>(std::move(text))});
}

Value Value::list(std::vector<Value> items) {
  return sequence(Sequence::Kind::list, std::move(items));
}

Value Value::tuple(std::vector<Value> items) {
  return sequence(Sequence::Kind::tuple, std::move(items));
}

Value Value::sequence(Sequence::Kind kind, std::vector<Value> items, std::string shown) {
  const Extent extent = extent_above(items);
  return Form(
      std::make_shared<const Sequence>(Sequence{std::move(items), kind, std::move(shown), extent}));
}

Value Value::iterator(std::vector<Value> items, std::optional<Failure> failure) {
  const Extent extent = extent_above(items);
  return Form(
      std::make_shared<Iterator>(Iterator{std::move(items), 0, extent, std::move(failure)}));
}

Value Value::function(std::string name, decltype(Function::call) call, const Value& kept) {
  const int depth = kept.extent().depth + 1;
  check_value_depth(depth);
  return Form(
      std::make_shared<const Function>(Function{std::move(name), false, depth, std::move(call)}));
}

Value Value::from_json(const nlohmann::ordered_json& json) { return value_of_json(json, 0); }

const std::string* Value::text() const {
  if (const auto* text = get_if<Text>()) return text->get();
  const auto* markup = get_if<Markup>();
  return markup ? markup->text.get() : nullptr;
}

const Sequence* Value::sequence() const {
  const auto* sequence = get_if<std::shared_ptr<const Sequence>>();
  return sequence ? sequence->get() : nullptr;
}

const Dict* Value::dict() const {
  const auto* dict = get_if<std::shared_ptr<const Dict>>();
  return dict ? dict->get() : nullptr;
}

Iterator* Value::iterator() const {
  const auto* iterator = get_if<std::shared_ptr<Iterator>>();
  return iterator ? iterator->get() : nullptr;
}

Namespace* Value::name_space() const {
  const auto* name_space = get_if<std::shared_ptr<Namespace>>();
  return name_space ? name_space->get() : nullptr;
}

Loop* Value::loop() const {
  const auto* loop = get_if<std::shared_ptr<Loop>>();
  return loop ? loop->get() : nullptr;
}

const Function* Value::function() const {
  const auto* function = get_if<std::shared_ptr<const Function>>();
  return function ? function->get() : nullptr;
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

Extent Value::extent() const {
  if (text()) return {0, 1 + text()->size() / 16};
  if (sequence()) return sequence()->extent;
  if (dict()) return dict()->extent;
  if (iterator()) return iterator()->extent;
  if (function()) return {function()->depth, 1};
  return {loop() ? loop()->depth : 0, 1};
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
                                        "str",       "Markup",   "",     "generator", "dict",
                                        "namespace", "function", "loop"};
  constexpr std::string_view kinds[] = {"list",      "tuple",       "tuple",     "range",
                                        "dict_keys", "dict_values", "dict_items"};
  if (sequence()) return kinds[static_cast<int>(sequence()->kind)];
  return names[form_.index()];
}

bool Value::is_iterable() const {
  return text() || sequence() || dict() || iterator() || is_undefined();
}

std::size_t Value::count() const {
  if (text()) return text::count_code_points(*text());
  if (sequence()) return sequence()->items.size();
  if (dict()) return dict()->entries.size();
  return iterator() ? iterator()->items.size() - iterator()->next : 0;
}

std::vector<Value> Value::iterate() const {
  if (is_undefined()) return {};
  if (sequence()) return sequence()->items;
  std::vector<Value> items;
  if (Iterator* once = iterator()) {
    while (const Value* item = once->take()) items.push_back(*item);
    return items;
  }
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
  if (text() && other.text()) return *text() == *other.text();
  if (form_.index() != other.form_.index()) return false;
  if (is_undefined() || is_none()) return true;
  if (const Sequence *a = sequence(), *b = other.sequence(); a) {
    if (a->is_view() && b->is_view() && a != b)
      throw Failure{ErrorCode::unsupported, "comparing the keys or items of dicts"};
    return a == b || ((a->kind == b->kind || (a->is_tuple() && b->is_tuple())) &&
                      all_equal(a->items, b->items));
  }
  if (const Dict *a = dict(), *b = other.dict(); a) {
    return a->entries.size() == b->entries.size() &&
           std::all_of(a->entries.begin(), a->entries.end(), [&](const auto& entry) {
             const Value* found = b->find(entry.first);
             return found && found->equals(entry.second);
           });
  }
  return iterator() == other.iterator() && name_space() == other.name_space() &&
         loop() == other.loop() && function() == other.function();
}

bool Value::less_than(const Value& other) const {
  if (is_integer() && other.is_integer()) return integer() < other.integer();
  if (is_number() && other.is_number()) return number() < other.number();
  if (text() && other.text()) return *text() < *other.text();
  const Sequence *a = sequence(), *b = other.sequence();
  if (a && b && ((a->is_list() && b->is_list()) || (a->is_tuple() && b->is_tuple()))) {
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
  if (dict()) {
    needle.require_hashable();
    return dict()->find(needle) != nullptr;
  }
  if (Iterator* once = iterator()) {
    while (const Value* item = once->take())
      if (item->equals(needle)) return true;
    return false;
  }
  if (!sequence()) throw invalid("a {} holds nothing to look for", type_name());
  const auto& items = sequence()->items;
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& item) { return item.equals(needle); });
}

void Value::require_hashable() const {
  const Sequence* items = sequence();
  if (dict() || (items && !items->is_tuple() && items->kind != Sequence::Kind::range))
    throw invalid("a {} cannot be a key", type_name());
  if (items)
    for (const Value& item : items->items) item.require_hashable();
}

}  // namespace troupe::jinja
