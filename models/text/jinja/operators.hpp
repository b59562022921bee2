#pragma once

#include "models/text/jinja/syntax.hpp"
#include "models/text/jinja/value.hpp"

namespace troupe::jinja {

// Python's operators on values. They throw Failure on operands of wrong types.

Value apply(BinaryOperator op, const Value& left, const Value& right);
Value negate(const Value& value);
bool compare(Comparison comparison, const Value& left, const Value& right);

/// `value[start:stop:step]`; an absent bound is none.
Value slice(const Value& value, const Value& start, const Value& stop, const Value& step);

/// Throws "'x' is undefined" if `value` is undefined.
void require_defined(const Value& value);

}  // namespace troupe::jinja
