// docs/configuration.md against the table that the program reads its YAML by: a section for every
// key, headed by its name and beginning with its type, default and values; nothing else.

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "launcher/config/config_schema.hpp"

namespace troupe {
namespace {

constexpr const char* page_path = TROUPE_SOURCE_DIR "/docs/configuration.md";
constexpr std::string_view heading = "### `";

/// Runs of blanks and line ends become one space, so that the page may be wrapped anywhere.
std::string unwrapped(const std::string& text) {
  std::istringstream words(text);
  std::string result, word;
  while (words >> word) result += (result.empty() ? "" : " ") + word;
  return result;
}

/// The text below each heading "### `key`" of the page, up to the next heading of any level.
std::map<std::string, std::string> sections_of_page() {
  std::ifstream page(page_path);
  std::map<std::string, std::string> sections;
  std::string line, key;
  while (std::getline(page, line)) {
    if (line.starts_with(heading) && line.ends_with('`')) {
      key = line.substr(heading.size(), line.size() - heading.size() - 1);
      EXPECT_EQ(sections.count(key), 0U) << key << " has two sections";
      sections[key];
    } else if (line.starts_with('#')) {
      key.clear();
    } else if (!key.empty()) {
      sections[key] += line + "\n";
    }
  }
  for (auto& [name, text] : sections) text = unwrapped(text);
  return sections;
}

std::string quoted_list(const std::vector<std::string_view>& words) {
  std::string result;
  for (const auto word : words) result += fmt::format("{}`{}`", result.empty() ? "" : ", ", word);
  return result;
}

/// How a section must begin.
std::string facts(const KeySpec& spec) {
  const bool numeric = spec.type == ValueType::integer || spec.type == ValueType::number;
  std::string text = fmt::format("Type: {}", to_string(spec.type));
  if (spec.allows_auto) text += ", or `auto`";
  if (!spec.choices.empty()) {
    text += fmt::format("; one of {}", quoted_list(spec.choices));
  } else if (numeric) {
    text += fmt::format("; from {:.16g} to {:.16g}", spec.minimum, spec.maximum);
  }
  text += spec.default_value.empty() ? "; no default"
                                     : fmt::format("; default: `{}`", spec.default_value);
  if (!spec.this_version.empty()) {
    text += fmt::format("; this version runs: {}", quoted_list(spec.this_version));
  }
  return text + ".";
}

TEST(ConfigurationPage, tells_type_default_and_values_of_every_key) {
  const auto sections = sections_of_page();
  ASSERT_FALSE(sections.empty()) << "no sections in " << page_path;
  for (const KeySpec& spec : config_schema()) {
    const auto found = sections.find(std::string(spec.key));
    if (found == sections.end()) {
      ADD_FAILURE() << "no section for " << spec.key << "; expected\n### `" << spec.key << "`\n\n"
                    << facts(spec) << "\n"
                    << spec.doc;
      continue;
    }
    const std::string expected = facts(spec);
    EXPECT_EQ(found->second.substr(0, expected.size()), expected) << "of " << spec.key;
    EXPECT_GT(found->second.size(), expected.size() + 10) << spec.key << " is not explained";
  }
}

TEST(ConfigurationPage, has_no_section_for_a_key_that_does_not_exist) {
  for (const auto& [key, text] : sections_of_page()) {
    EXPECT_NE(find_key(key), nullptr) << "### `" << key << "` is not a key of the program";
  }
}

TEST(ConfigurationPage, names_the_keys_of_later_versions) {
  std::ifstream page(page_path);
  std::stringstream text;
  text << page.rdbuf();
  for (const std::string_view key : later_config_keys()) {
    EXPECT_NE(text.str().find(fmt::format("`{}`", key)), std::string::npos)
        << key << " is not on " << page_path;
  }
}

}  // namespace
}  // namespace troupe
