// docs/configuration.md equals the program's output from the table with which it reads its YAML.

#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "launcher/config/config_reference.hpp"
#include "launcher/config/config_schema.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

TEST(ConfigurationPage, is_what_launcher_reference_prints) {
  std::ifstream page(test::source_path("docs/configuration.md"));
  std::istringstream expected(configuration_reference());
  std::string found_line, expected_line;
  for (int number = 1;; ++number) {
    const bool found = static_cast<bool>(std::getline(page, found_line));
    const bool wanted = static_cast<bool>(std::getline(expected, expected_line));
    ASSERT_EQ(found, wanted) << "line " << number
                             << ": the page and the schema end at different places; write it anew: "
                                "launcher reference > docs/configuration.md";
    if (!found) return;
    ASSERT_EQ(found_line, expected_line)
        << "line " << number << "; write it anew: launcher reference > docs/configuration.md";
  }
}

TEST(ConfigurationPage, explains_every_key_and_fits_100_columns) {
  for (const KeySpec& spec : config_schema()) {
    EXPECT_GE(spec.reference.size(), 20U) << spec.key << " is not explained";
    EXPECT_EQ(spec.reference.find('\n'), std::string_view::npos) << spec.key;
  }
  std::istringstream lines(configuration_reference());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace
}  // namespace troupe
