#pragma once

#include <cstdint>

namespace CLI {
class Validator;
}

namespace troupe {

/// Checks an option's value, or each of several. Messages show the limits as plain numbers:
/// "expected a whole number from 0 to 1000, found x".
CLI::Validator integer_between(std::int64_t least, std::int64_t most);
CLI::Validator number_between(double least, double most);

}  // namespace troupe
