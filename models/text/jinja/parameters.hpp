#pragma once

#include <array>
#include <string_view>

#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

/// The arguments of one call of a filter, test or method, in the order of its parameters; null for
/// missing ones.
class Bound {
 public:
  /// Binds as Python does. `parameters` are names separated by blanks; "=" after one makes it
  /// optional, a "/" before all forbids passing any by name. Throws Failure for missing, surplus
  /// and unknown arguments.
  Bound(std::string_view name, std::string_view parameters, const Arguments& arguments);

  const Value* operator[](std::size_t i) const { return values_[i]; }
  bool is_true(std::size_t i) const { return values_[i] && values_[i]->is_true(); }
  /// Returns the integer at `i`, or `otherwise`. Throws if it is not an integer.
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const {
    return values_[i] ? values_[i]->integer() : otherwise;
  }

 private:
  static constexpr std::size_t most = 5;
  std::array<const Value*, most> values_{};
};

}  // namespace troupe::jinja
