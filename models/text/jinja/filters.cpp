// The tables of filters, and the filters for values of any type and for numbers.
#include <algorithm>
#include <cmath>

#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/filter_use.hpp"
#include "models/text/jinja/operators.hpp"
#include "models/text/jinja/representation.hpp"
#include "models/text/jinja/text_functions.hpp"

namespace troupe::jinja {
namespace {

Value length(const FilterUse& use) {
  const Value& value = use.operand;
  if (value.is_undefined()) return std::int64_t{0};
  if (!value.text() && !value.sequence() && !value.dict())
    throw invalid("a {} has no length", value.type_name());
  return static_cast<std::int64_t>(value.count());
}

Value to_json_filter(const FilterUse& use) {
  constexpr std::int64_t widest_indent = 1000;
  require_defined(use.operand);
  use.interpreter.charge_walk(use.operand);
  JsonStyle style;
  const Value* indent = use.bound[1];
  if (indent && !indent->is_none()) {
    style.indent = indent->text() ? *indent->text()
                                  : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                                    indent->integer(), 0, widest_indent)),
                                                ' ');
    style.item_separator = std::string(",");  // GCC 12 warns of assigning a literal here
  }
  if (const Value* separators = use.bound[2]; separators && !separators->is_none()) {
    const std::vector<Value> pair = use.interpreter.items_of(*separators);
    if (pair.size() != 2 || !pair[0].text() || !pair[1].text())
      throw invalid("separators of JSON are two strings");
    style.item_separator = *pair[0].text();
    style.key_separator = *pair[1].text();
  }
  style.ensure_ascii = use.bound.is_true(0);
  style.sort_keys = use.bound.is_true(3);
  return to_json(use.operand, style);
}

Value default_value(const FilterUse& use) {
  const bool is_missing =
      use.operand.is_undefined() || (use.bound.is_true(1) && !use.operand.is_true());
  if (!is_missing) return use.operand;
  return use.bound[0] ? *use.bound[0] : Value("");
}

Value attribute(const FilterUse& use) {
  const auto found = use.interpreter.own_attribute(use.operand, use.bound[0]->to_string());
  return found ? *found : Value::undefined("there is no such attribute");
}

Value string(const FilterUse& use) { return use.operand.text() ? use.operand : Value(use.text()); }

Value whole_part(double value) {
  if (!(std::abs(value) < 9.2e18)) throw invalid("{} is an integer of more than 64 bits", value);
  return static_cast<std::int64_t>(value);
}

Value to_integer(const FilterUse& use) {
  require_defined(use.operand);
  const Value otherwise = use.bound[0] ? *use.bound[0] : Value(std::int64_t{0});
  if (use.operand.is_integer()) return use.operand.integer();
  std::optional<double> number;
  if (use.operand.text()) {
    use.interpreter.charge_characters(use.operand.text()->size());
    if (const auto integer = parse_integer(*use.operand.text(), use.bound.integer(1, 10)))
      return *integer;
    number = parse_float(*use.operand.text());
    if (number && !std::isfinite(*number)) return otherwise;
  } else if (use.operand.is_number()) {
    number = use.operand.number();
    if (std::isnan(*number)) return otherwise;
  }
  return number ? whole_part(*number) : otherwise;
}

Value to_float(const FilterUse& use) {
  require_defined(use.operand);
  if (use.operand.is_number()) return use.operand.number();
  if (use.operand.text()) {
    use.interpreter.charge_characters(use.operand.text()->size());
    if (const auto number = parse_float(*use.operand.text())) return *number;
  }
  return use.bound[0] ? *use.bound[0] : Value(0.0);
}

Value absolute(const FilterUse& use) {
  require_defined(use.operand);
  if (use.operand.is_integer())
    return use.operand.integer() < 0 ? negate(use.operand) : Value(use.operand.integer());
  return std::abs(use.operand.number());
}

/// `value` to the nearest multiple of `unit`, halves to the even one.
Value rounded_to_multiple(std::int64_t value, std::int64_t unit) {
  std::int64_t below = value / unit - (value % unit < 0 ? 1 : 0);
  const std::int64_t rest = value - below * unit;
  if (rest > unit - rest || (rest == unit - rest && below % 2 != 0)) ++below;
  std::int64_t result = 0;
  if (__builtin_mul_overflow(below, unit, &result))
    throw invalid("an integer of more than 64 bits");
  return result;
}

Value rounded(const Value& value, std::int64_t precision) {
  constexpr std::int64_t integer_digits = 18, float_digits = 323;
  if (value.is_integer()) {
    if (precision >= 0) return value.integer();
    if (precision < -integer_digits) return std::int64_t{0};
    std::int64_t unit = 1;
    for (std::int64_t i = precision; i < 0; ++i) unit *= 10;
    return rounded_to_multiple(value.integer(), unit);
  }
  const double number = value.number();
  if (!std::isfinite(number) || precision > float_digits) return number;
  if (precision >= 0)  // correctly rounded, as Python does it
    return std::strtod(fmt::format("{:.{}f}", number, static_cast<int>(precision)).c_str(),
                       nullptr);
  if (precision < -308) return std::copysign(0.0, number);
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(number / unit) * unit;
}

Value round(const FilterUse& use) {
  constexpr std::int64_t most_digits = 300;
  require_defined(use.operand);
  const std::int64_t precision = use.bound.integer(0, 0);
  const std::string method = use.bound[1] ? use.bound[1]->to_string() : "common";
  if (method == "common") return rounded(use.operand, precision);
  if (method != "ceil" && method != "floor")
    throw invalid("round() knows the methods common, ceil and floor, not '{}'", method);
  if (std::abs(precision) > most_digits) throw invalid("round() to {} digits", precision);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = use.operand.number() * scale;
  if (!std::isfinite(scaled)) throw invalid("round() of {}", use.operand.number());
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

constexpr FilterRow general_rows[] = {
    {"attr", "name", attribute},
    {"count", "", length},
    {"d", "default_value= boolean=", default_value},
    {"default", "default_value= boolean=", default_value},
    {"length", "", length},
    {"string", "", string},
    {"tojson", "ensure_ascii= indent= separators= sort_keys=", to_json_filter},
};

constexpr FilterRow number_rows[] = {
    {"abs", "", absolute},
    {"float", "default=", to_float},
    {"int", "default= base=", to_integer},
    {"round", "precision= method=", round},
};

const FilterRow* find_filter(std::string_view name) {
  for (const auto table :
       {std::span<const FilterRow>(general_rows), std::span<const FilterRow>(number_rows),
        text_filters(), sequence_filters()})
    for (const FilterRow& row : table)
      if (row.name == name) return &row;
  return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(Interpreter& interpreter, std::string_view name, const Value& operand,
                   const Arguments& arguments) {
  const FilterRow* filter = find_filter(name);
  if (!filter) throw Failure{ErrorCode::unsupported, fmt::format("the filter '{}'", name)};
  static const Arguments none;
  const bool takes_any = filter->parameters == "*";
  const Bound bound(name, takes_any ? "" : filter->parameters, takes_any ? none : arguments);
  return filter->apply({interpreter, operand, arguments, bound});
}

}  // namespace troupe::jinja
