#include <fstream>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/text/jinja/template.hpp"
#include "tests/support/source_path.hpp"
#include "tests/unit/models/text/text_data.hpp"

// Results of Jinja 3.1.6 for the same templates: tests/data/jinja/record.py.

namespace troupe::jinja {
namespace {

using nlohmann::ordered_json;
using tests::read_rows;

constexpr std::int64_t recorded_now = 1753520703;

std::filesystem::path jinja_data(const std::string& name) {
  return test::source_path("tests/data/jinja") / name;
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Expects the recorded text; templates that Jinja refuses must be refused.
void expect_as_recorded(const std::string& source, const ordered_json& variables,
                        const ordered_json& recorded) {
  const auto parsed = Template::parse(source, "t");
  const auto text =
      parsed.ok() ? parsed->render(variables, recorded_now) : Result<std::string>(parsed.error());
  if (recorded.contains("refused")) {
    EXPECT_FALSE(text.ok()) << "Jinja: " << recorded["refused"] << ", here: " << *text;
  } else {
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(*text, recorded["text"].get<std::string>());
  }
}

TEST(JinjaReference, gives_the_text_of_jinja_for_every_snippet_or_refuses_what_it_refuses) {
  const auto variables = ordered_json::parse(file_text(jinja_data("variables.json")));
  const auto rows = read_rows(jinja_data("snippets.jsonl"));
  EXPECT_GE(rows.size(), 200U);
  for (const auto& row : rows) {
    SCOPED_TRACE(row["template"].get<std::string>());
    expect_as_recorded(row["template"].get<std::string>(), variables, row);
  }
}

TEST(JinjaReference, renders_the_constructs_of_published_templates_as_jinja_does) {
  const auto conversations = ordered_json::parse(file_text(jinja_data("conversations.json")));
  std::set<std::string> names;
  for (const auto& row : read_rows(jinja_data("templates.jsonl"))) {
    const auto name = row["template"].get<std::string>();
    const auto conversation = row["conversation"].get<std::string>();
    SCOPED_TRACE(fmt::format("{}, {}", name, conversation));
    ordered_json variables = {{"bos_token", "<s>"},
                              {"eos_token", "</s>"},
                              {"add_generation_prompt", true},
                              {"tools", nullptr},
                              {"documents", nullptr}};
    variables.update(conversations.at(conversation));
    expect_as_recorded(file_text(jinja_data("templates/" + name)), variables, row);
    names.insert(name);
  }
  EXPECT_GE(names.size(), 20U);
}

}  // namespace
}  // namespace troupe::jinja
