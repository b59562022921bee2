#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/source_path.hpp"

namespace troupe::tests {

inline std::filesystem::path text_data(const std::string& name) {
  return test::source_path("tests/data/text") / name;
}

/// Reads the rows of a JSON-lines file with the keys in their order; throws if there is none.
inline std::vector<nlohmann::ordered_json> read_rows(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<nlohmann::ordered_json> rows;
  for (std::string line; std::getline(file, line);)
    rows.push_back(nlohmann::ordered_json::parse(line));
  if (rows.empty()) throw std::runtime_error("no rows in " + path.string());
  return rows;
}

}  // namespace troupe::tests
