#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/text/jinja/interpreter.hpp"
#include "models/text/jinja/syntax.hpp"
#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

/// What a template sees as `loop`. Its fields are computed when they are asked for.
struct Loop {
  const For* statement = nullptr;
  std::shared_ptr<Scope> outer;  ///< in which the loop stands
  std::vector<Value> items;
  int level = 0;  ///< how often a recursive loop has called itself
  int depth = 1;  ///< of nested values
  std::size_t at = 0;
  std::optional<std::vector<Value>> last_seen;  ///< by loop.changed()

  /// Null if `loop` has no such attribute.
  std::optional<Value> field(const std::shared_ptr<Loop>& self, std::string_view name) const;
};

}  // namespace troupe::jinja
