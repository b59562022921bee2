#include <algorithm>
#include <charconv>
#include <cmath>

#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/operators.hpp"
#include "models/text/unicode/characters.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe::jinja {
namespace {

/// One use of a filter.
struct Use {
  Interpreter& interpreter;
  const Value& operand;
  const Arguments& arguments;

  std::string text() const { return operand.to_string(); }
  const Value* find(std::size_t position, std::string_view name) const {
    return arguments.find(position, name);
  }
  /// The items of the operand, paid for.
  std::vector<Value> items() const {
    if (operand.text()) interpreter.charge_text(operand.text()->size());
    std::vector<Value> items = operand.iterate();
    interpreter.charge(items.size());
    return items;
  }
  /// `item`, or what the dotted `path` of attributes or an index leads to from it.
  Value follow(Value item, const Value& path) const {
    if (!path.text()) return interpreter.subscript(item, path);
    std::string_view rest = *path.text();
    while (!rest.empty()) {
      const auto dot = rest.find('.');
      item = interpreter.subscript(item, Value(rest.substr(0, dot)));
      rest = dot == rest.npos ? "" : rest.substr(dot + 1);
    }
    return item;
  }
};

Value length(const Use& use) {
  const Value& value = use.operand;
  if (value.text()) return static_cast<std::int64_t>(text::count_code_points(*value.text()));
  if (value.sequence()) return static_cast<std::int64_t>(value.sequence()->items.size());
  if (value.dict()) return static_cast<std::int64_t>(value.dict()->entries.size());
  if (value.is_undefined()) return std::int64_t{0};
  throw invalid("a {} has no length", value.type_name());
}

Value to_json(const Use& use) {
  require_defined(use.operand);
  const Value* indent = use.find(0, "indent");
  if (const Value* other = use.find(9, "ensure_ascii"); other && other->is_true())
    throw Failure{ErrorCode::unsupported, "tojson with ensure_ascii"};
  const Value* sorted = use.find(9, "sort_keys");
  return use.operand.to_json(
      indent && !indent->is_none()
          ? static_cast<int>(std::clamp<std::int64_t>(indent->integer(), 0, 32))
          : -1,
      sorted && sorted->is_true());
}

Value join(const Use& use) {
  const Value* separator = use.find(0, "d");
  const Value* path = use.find(1, "attribute");
  std::string out;
  bool is_first = true;
  for (const Value& item : use.items()) {
    if (!is_first && separator) out += separator->to_string();
    is_first = false;
    out += (path ? use.follow(item, *path) : item).to_string();
    check_text_size(out.size());
  }
  return out;
}

Value default_value(const Use& use) {
  const Value* fallback = use.find(0, "default_value");
  const Value* for_false = use.find(1, "boolean");
  const bool is_missing =
      use.operand.is_undefined() || (for_false && for_false->is_true() && !use.operand.is_true());
  if (!is_missing) return use.operand;
  return fallback ? *fallback : Value("");
}

Value first(const Use& use) {
  const auto items = use.items();
  return items.empty() ? Value::undefined("the first item of nothing") : items.front();
}

Value last(const Use& use) {
  const auto items = use.items();
  return items.empty() ? Value::undefined("the last item of nothing") : items.back();
}

Value list(const Use& use) { return Value::list(use.items()); }

Value items(const Use& use) {
  if (use.operand.is_undefined()) return Value::list({});
  if (!use.operand.dict()) throw invalid("items of a {}", use.operand.type_name());
  return call_method(use.interpreter, use.operand, "items", {});
}

Value map(const Use& use) {
  std::vector<Value> out;
  const Value* path = use.find(9, "attribute");
  const Value* fallback = use.find(9, "default");
  if (!path && use.arguments.positional.empty()) throw invalid("map of no filter or attribute");
  Arguments rest = use.arguments;
  if (!path) rest.positional.erase(rest.positional.begin());
  for (const Value& item : use.items()) {
    if (path) {
      Value found = use.follow(item, *path);
      if (found.is_undefined() && fallback) found = *fallback;
      out.push_back(std::move(found));
    } else {
      out.push_back(
          apply_filter(use.interpreter, use.arguments.positional[0].to_string(), item, rest));
    }
  }
  return Value::list(std::move(out));
}

/// select, reject, selectattr and rejectattr: the items of which a test holds (or does not).
Value pick(const Use& use, bool by_attribute, bool keep_if) {
  Arguments rest = use.arguments;
  const auto take = [&]() -> Value {
    if (rest.positional.empty()) return {};
    Value front = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return front;
  };
  const Value path = by_attribute ? take() : Value();
  if (by_attribute && path.is_none()) throw invalid("no attribute to select by");
  const Value test = take();
  std::vector<Value> out;
  for (const Value& item : use.items()) {
    const Value subject = by_attribute ? use.follow(item, path) : item;
    const bool holds = test.is_none()
                           ? subject.is_true()
                           : apply_test(use.interpreter, test.to_string(), subject, rest);
    if (holds == keep_if) out.push_back(item);
  }
  return Value::list(std::move(out));
}

Value select(const Use& use) { return pick(use, false, true); }
Value reject(const Use& use) { return pick(use, false, false); }
Value select_attribute(const Use& use) { return pick(use, true, true); }
Value reject_attribute(const Use& use) { return pick(use, true, false); }

Value string(const Use& use) { return use.text(); }

Value to_integer(const Use& use) {
  const Value* fallback = use.find(0, "default");
  Value otherwise = fallback ? *fallback : Value(std::int64_t{0});
  if (use.operand.is_integer()) return use.operand.integer();
  double value = NAN;
  if (use.operand.is_number()) {
    value = use.operand.number();
  } else if (use.operand.text()) {
    const std::string text = strip(*use.operand.text(), nullptr, true, true);
    std::int64_t integer = 0;
    const char* end = text.data() + text.size();
    const auto [at, failure] = std::from_chars(text.data(), end, integer);
    if (failure == std::errc{} && at == end) return integer;
    if (const auto [stop, error] = std::from_chars(text.data(), end, value);
        error != std::errc{} || stop != end)
      return otherwise;
  }
  return std::abs(value) < 9.2e18 ? Value(static_cast<std::int64_t>(value)) : otherwise;
}

Value to_float(const Use& use) {
  const Value* fallback = use.find(0, "default");
  if (use.operand.is_number()) return use.operand.number();
  const std::string text = strip(use.text(), nullptr, true, true);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data(), end, value);
  if (failure == std::errc{} && at == end) return value;
  return fallback ? *fallback : Value(0.0);
}

Value same(const Use& use) { return use.operand; }

Value indent(const Use& use) {
  const Value *width = use.find(0, "width"), *first_too = use.find(1, "first"),
              *blank_too = use.find(2, "blank");
  const std::string margin = width && width->text()
                                 ? *width->text()
                                 : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                                   width ? width->integer() : 4, 0, 1000)),
                                               ' ');
  const std::string text = use.text();
  std::string out = first_too && first_too->is_true() ? margin : "";
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    const bool is_blank = i + 1 == text.size() || text[i + 1] == '\n';
    if (text[i] == '\n' && (!is_blank || (blank_too && blank_too->is_true()))) {
      out += margin;
      check_text_size(out.size());
    }
  }
  return out;
}

Value unique(const Use& use) {
  std::vector<Value> out;
  for (const Value& item : use.items()) {
    use.interpreter.charge(out.size() / 8);
    const auto is_same = [&](const Value& other) {
      return item.text() && other.text()
                 ? text::to_lower(*item.text()) == text::to_lower(*other.text())
                 : item.equals(other);
    };
    if (std::none_of(out.begin(), out.end(), is_same)) out.push_back(item);
  }
  return Value::list(std::move(out));
}

bool less_ignoring_case(const Value& a, const Value& b) {
  if (a.text() && b.text()) return text::to_lower(*a.text()) < text::to_lower(*b.text());
  return a.less_than(b);
}

Value sort(const Use& use) {
  const Value *reverse = use.find(0, "reverse"), *with_case = use.find(1, "case_sensitive"),
              *path = use.find(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : use.items())
    keyed.emplace_back(path ? use.follow(item, *path) : item, item);
  use.interpreter.charge(keyed.size() * 8);
  const bool is_sensitive = with_case && with_case->is_true();
  const bool is_reversed = reverse && reverse->is_true();
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const Value &x = is_reversed ? b.first : a.first, &y = is_reversed ? a.first : b.first;
    return is_sensitive ? x.less_than(y) : less_ignoring_case(x, y);
  });
  std::vector<Value> out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return Value::list(std::move(out));
}

Value dict_sort(const Use& use) {
  const Value pairs = items(use);
  return sort({use.interpreter, pairs, {{}, {{"attribute", Value(std::int64_t{0})}}}});
}

Value reverse(const Use& use) {
  return use.operand.is_undefined() ? Value::list({})
                                    : slice(use.operand, {}, {}, Value(std::int64_t{-1}));
}

Value sum(const Use& use) {
  Value total = std::int64_t{0};
  const Value* path = use.find(0, "attribute");
  for (const Value& item : use.items())
    total = apply(BinaryOperator::add, total, path ? use.follow(item, *path) : item);
  return total;
}

Value extreme(const Use& use, bool smallest) {
  const auto items = use.items();
  if (items.empty()) return Value::undefined("the extreme item of nothing");
  return smallest ? *std::min_element(items.begin(), items.end(), less_ignoring_case)
                  : *std::max_element(items.begin(), items.end(), less_ignoring_case);
}

Value min(const Use& use) { return extreme(use, true); }
Value max(const Use& use) { return extreme(use, false); }

Value absolute(const Use& use) {
  const bool is_negative = use.operand.number() < 0;
  return is_negative ? negate(use.operand) : use.operand;
}

Value round(const Use& use) {
  const Value* precision = use.find(0, "precision");
  const double scale = std::pow(10.0, precision ? precision->number() : 0.0);
  return std::nearbyint(use.operand.number() * scale) / scale;
}

Value upper(const Use& use) { return text::to_upper(use.text()); }
Value lower(const Use& use) { return text::to_lower(use.text()); }

/// Unlike str.title(), begins a word only after a space or an opening bracket.
Value title(const Use& use) {
  std::string out;
  bool in_word = false;
  const std::string text = use.text();
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = text::next_code_point(text, at);
    text::append_code_point(in_word ? text::to_lower(c) : text::to_upper(c), out);
    in_word = !text::is_python_space(c) &&
              std::u32string_view(U"-({[<").find(c) == std::u32string_view::npos;
  }
  return out;
}

Value trim(const Use& use) { return strip(use.text(), use.find(0, "chars"), true, true); }
Value capitalize(const Use& use) {
  return call_method(use.interpreter, Value(use.text()), "capitalize", {});
}
Value replace(const Use& use) {
  return call_method(use.interpreter, Value(use.text()), "replace", use.arguments);
}

using FilterFunction = Value (*)(const Use&);
constexpr std::pair<std::string_view, FilterFunction> filters[] = {
    {"abs", absolute},
    {"capitalize", capitalize},
    {"count", length},
    {"d", default_value},
    {"default", default_value},
    {"dictsort", dict_sort},
    {"first", first},
    {"float", to_float},
    {"indent", indent},
    {"int", to_integer},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"lower", lower},
    {"map", map},
    {"max", max},
    {"min", min},
    {"reject", reject},
    {"rejectattr", reject_attribute},
    {"replace", replace},
    {"reverse", reverse},
    {"round", round},
    {"safe", same},
    {"select", select},
    {"selectattr", select_attribute},
    {"sort", sort},
    {"string", string},
    {"sum", sum},
    {"title", title},
    {"tojson", to_json},
    {"trim", trim},
    {"unique", unique},
    {"upper", upper},
};

}  // namespace

Value apply_filter(Interpreter& interpreter, std::string_view name, const Value& operand,
                   const Arguments& arguments) {
  for (const auto& [known, filter] : filters)
    if (known == name) return filter({interpreter, operand, arguments});
  throw Failure{ErrorCode::unsupported, fmt::format("the filter '{}'", name)};
}

}  // namespace troupe::jinja
