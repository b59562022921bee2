#pragma once

#include <string>
#include <vector>

namespace troupe::test {

/// The sorted lines of an output, with their common time replaced by 0.
std::vector<std::string> sorted_lines(const std::string& output);

}  // namespace troupe::test
