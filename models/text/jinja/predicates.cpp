// The tests of the language: what may stand behind `is`.
#include "models/text/jinja/builtins.hpp"
#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/operators.hpp"
#include "models/text/unicode/characters.hpp"

namespace troupe::jinja {
namespace {

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
       return value.text() || value.sequence() || value.dict() || value.is_undefined();
     }},
    {"iterable",
     [](const Value& value) {
       return value.text() || value.sequence() || value.dict() || value.is_undefined();
     }},
    {"callable",
     [](const Value& value) { return value.get_if<std::shared_ptr<const Function>>() != nullptr; }},
    {"even", [](const Value& value) { return value.integer() % 2 == 0; }},
    {"odd", [](const Value& value) { return value.integer() % 2 != 0; }},
    {"lower",
     [](const Value& value) { return value.to_string() == text::to_lower(value.to_string()); }},
    {"upper",
     [](const Value& value) { return value.to_string() == text::to_upper(value.to_string()); }},
};

constexpr std::pair<std::string_view, Comparison> comparisons[] = {
    {"eq", Comparison::equal},         {"equalto", Comparison::equal},
    {"ne", Comparison::unequal},       {"lt", Comparison::less},
    {"lessthan", Comparison::less},    {"le", Comparison::less_equal},
    {"gt", Comparison::greater},       {"greaterthan", Comparison::greater},
    {"ge", Comparison::greater_equal}, {"in", Comparison::in},
};

}  // namespace

bool apply_test(Interpreter&, std::string_view name, const Value& operand,
                const Arguments& arguments) {
  for (const auto& [known, predicate] : predicates)
    if (known == name) return predicate(operand);
  const auto argument = [&]() -> const Value& {
    if (arguments.positional.empty()) throw invalid("the test '{}' needs an argument", name);
    return arguments.positional[0];
  };
  for (const auto& [known, comparison] : comparisons)
    if (known == name) return compare(comparison, operand, argument());
  if (name == "sameas")
    return operand.type_name() == argument().type_name() && operand.equals(argument());
  if (name == "divisibleby")
    return apply(BinaryOperator::modulo, operand, argument()).number() == 0;
  throw Failure{ErrorCode::unsupported, fmt::format("the test '{}'", name)};
}

}  // namespace troupe::jinja
