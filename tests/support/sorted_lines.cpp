#include "tests/support/sorted_lines.hpp"

#include <algorithm>
#include <regex>
#include <sstream>

namespace troupe::test {

std::vector<std::string> sorted_lines(const std::string& output) {
  std::istringstream text(
      std::regex_replace(output, std::regex("\"created\":[0-9]+"), "\"created\":0"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace troupe::test
