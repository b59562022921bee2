#pragma once

#include <span>
#include <string>
#include <string_view>

#include "models/text/jinja/failure.hpp"
#include "models/text/jinja/interpreter.hpp"
#include "models/text/jinja/parameters.hpp"
#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

/// One call of a method of `object`.
struct MethodCall {
  Interpreter& interpreter;
  std::string_view name;
  const Value& object;
  const Arguments& arguments;
  Bound bound;  ///< empty for methods that take any arguments

  const std::string& self() const { return *object.text(); }
  /// The same, charged for work on each of its characters.
  const std::string& characters() const {
    interpreter.charge_characters(self().size());
    return self();
  }
  /// Returns argument `i`, a string. Throws if it is not one.
  const std::string& text(std::size_t i) const {
    if (!bound[i] || !bound[i]->text())
      throw invalid("{}() needs a string as argument {}", name, i + 1);
    return *bound[i]->text();
  }
};

/// A row of a table of methods.
struct MethodRow {
  std::string_view name;
  std::string_view parameters;  ///< as Bound takes them; "*": any
  Value (*apply)(const MethodCall&);
  bool mixes_texts = false;  ///< inserts arguments into the text, which Markup would escape
};

std::span<const MethodRow> text_methods();

}  // namespace troupe::jinja
