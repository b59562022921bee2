#pragma once

#include "models/text/jinja/syntax.hpp"

namespace troupe::jinja {

/// The depth of a tree whose root is `form`, from the depths of its children; a leaf has 1.
int depth_of(const Expression::Form& form);

}  // namespace troupe::jinja
