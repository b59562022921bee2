#include "tests/support/sorted_lines.hpp"

#include <algorithm>
#include <sstream>

#include "tests/support/regex.hpp"

namespace troupe::test {

std::vector<std::string> sorted_lines(const std::string& output) {
  std::istringstream text(regex_replace(output, "\"created\":[0-9]+", "\"created\":0"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace troupe::test
