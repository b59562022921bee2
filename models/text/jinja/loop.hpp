#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/text/jinja/interpreter.hpp"
#include "models/text/jinja/syntax.hpp"
#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

/// The template's `loop` object. Its fields are computed on access.
struct Loop {
  const For* statement = nullptr;
  std::shared_ptr<Scope> outer;  ///< the scope that contains the loop
  std::vector<Value> items;
  int level = 0;  ///< recursion level of a recursive loop
  int depth = 1;  ///< nesting of values
  std::size_t at = 0;
  std::optional<std::vector<Value>> last_seen;  ///< the last arguments of loop.changed()

  /// Returns null if `loop` has no such attribute.
  std::optional<Value> field(const std::shared_ptr<Loop>& self, std::string_view name) const;
};

}  // namespace troupe::jinja
