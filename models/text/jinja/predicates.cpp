// The tests of the language, used after `is`.
#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/operators.hpp"
#include "models/text/jinja/parameters.hpp"
#include "models/text/jinja/text_functions.hpp"

namespace troupe::jinja {
namespace {

double remainder_of_two(const Value& value) {
  return apply(BinaryOperator::modulo, value, std::int64_t{2}).number();
}

using Predicate = bool (*)(const Value& value);
constexpr std::pair<std::string_view, Predicate> predicates[] = {
    {"defined", [](const Value& value) { return !value.is_undefined(); }},
    {"undefined", [](const Value& value) { return value.is_undefined(); }},
    {"none", [](const Value& value) { return value.is_none(); }},
    {"true", [](const Value& value) { return value.get_if<bool>() && value.is_true(); }},
    {"false", [](const Value& value) { return value.get_if<bool>() && !value.is_true(); }},
    {"boolean", [](const Value& value) { return value.get_if<bool>() != nullptr; }},
    {"integer", [](const Value& value) { return value.get_if<std::int64_t>() != nullptr; }},
    {"float", [](const Value& value) { return value.get_if<double>() != nullptr; }},
    {"number", [](const Value& value) { return value.is_number(); }},
    {"string", [](const Value& value) { return value.text() != nullptr; }},
    {"mapping", [](const Value& value) { return value.dict() != nullptr; }},
    {"sequence",
     [](const Value& value) {
       return value.is_iterable() && !value.iterator() &&
              !(value.sequence() && value.sequence()->is_view());
     }},
    {"iterable", [](const Value& value) { return value.is_iterable(); }},
    {"callable",
     [](const Value& value) { return value.function() || value.loop() || value.is_undefined(); }},
    {"even", [](const Value& value) { return remainder_of_two(value) == 0; }},
    {"odd", [](const Value& value) { return remainder_of_two(value) == 1; }},
    {"escaped", [](const Value& value) { return value.is_markup(); }},
};

/// Tests of how a value is printed.
constexpr std::pair<std::string_view, bool (*)(std::string_view)> text_predicates[] = {
    {"lower", [](std::string_view text) { return has_case(text, false); }},
    {"upper", [](std::string_view text) { return has_case(text, true); }},
    {"filter", is_filter},
    {"test", is_test},
};

constexpr std::pair<std::string_view, Comparison> comparisons[] = {
    {"eq", Comparison::equal},         {"equalto", Comparison::equal},
    {"==", Comparison::equal},         {"ne", Comparison::unequal},
    {"!=", Comparison::unequal},       {"lt", Comparison::less},
    {"lessthan", Comparison::less},    {"<", Comparison::less},
    {"le", Comparison::less_equal},    {"<=", Comparison::less_equal},
    {"gt", Comparison::greater},       {"greaterthan", Comparison::greater},
    {">", Comparison::greater},        {"ge", Comparison::greater_equal},
    {">=", Comparison::greater_equal}, {"in", Comparison::in},
};

/// Python's `a is b`, as far as it does not depend on CPython's caching of small values.
bool is_same(const Value& a, const Value& b) {
  if (a.is_markup() != b.is_markup() || a.type_name() != b.type_name()) return false;
  if (a.sequence()) return a.sequence() == b.sequence();
  if (a.dict()) return a.dict() == b.dict();
  return a.equals(b);
}

}  // namespace

bool is_test(std::string_view name) {
  for (const auto& [known, predicate] : predicates)
    if (known == name) return true;
  for (const auto& [known, predicate] : text_predicates)
    if (known == name) return true;
  for (const auto& [known, comparison] : comparisons)
    if (known == name) return true;
  return name == "sameas" || name == "divisibleby";
}

bool apply_test(Interpreter& interpreter, std::string_view name, const Value& operand,
                const Arguments& arguments) {
  for (const auto& [known, predicate] : predicates) {
    if (known != name) continue;
    const Bound bound(name, "", arguments);
    if (operand.text()) interpreter.charge_text(operand.text()->size());
    return predicate(operand);
  }
  for (const auto& [known, predicate] : text_predicates) {
    if (known != name) continue;
    const Bound bound(name, "", arguments);
    const std::string text = interpreter.text_of(operand);
    interpreter.charge_characters(text.size());
    return predicate(text);
  }
  if (!is_test(name)) throw Failure{ErrorCode::unsupported, fmt::format("the test '{}'", name)};
  const Bound bound(name, "/other", arguments);
  const Value& other = *bound[0];
  interpreter.charge_reading(operand);
  interpreter.charge_reading(other);
  for (const auto& [known, comparison] : comparisons)
    if (known == name) return compare(comparison, operand, other);
  if (name == "sameas") return is_same(operand, other);
  return apply(BinaryOperator::modulo, operand, other).number() == 0;
}

}  // namespace troupe::jinja
