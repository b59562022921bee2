#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/jinja/interpreter.hpp"
#include "models/text/jinja/parameters.hpp"
#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

/// One use of a filter.
struct FilterUse {
  Interpreter& interpreter;
  const Value& operand;
  const Arguments& arguments;
  Bound bound;  ///< empty for filters that take any arguments

  std::string text() const { return interpreter.text_of(operand); }
  /// The same, charged for work on each of its characters.
  std::string characters() const {
    std::string out = text();
    interpreter.charge_characters(out.size());
    return out;
  }
  std::vector<Value> items() const { return interpreter.items_of(operand); }
  /// Returns `changed`, escaped if the operand is.
  Value as_operand(std::string changed) const {
    return operand.is_markup() ? Value::markup(std::move(changed)) : Value(std::move(changed));
  }
};

/// A row of a table of filters.
struct FilterRow {
  std::string_view name;
  std::string_view parameters;  ///< as Bound takes them; "*": any
  Value (*apply)(const FilterUse&);
};

// The filters, by what they work on.
std::span<const FilterRow> text_filters();
std::span<const FilterRow> sequence_filters();

}  // namespace troupe::jinja
