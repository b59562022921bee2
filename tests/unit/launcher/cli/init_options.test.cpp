#include "launcher/cli/init_options.hpp"

#include "tests/support/source_path.hpp"
#include "tests/unit/launcher/cli/parsed_arguments.hpp"

namespace troupe {
namespace {

Parsed<InitOptions> parse(const std::vector<std::string>& arguments) {
  return parse_for<InitArguments>("init", arguments);
}

TEST(InitOptions, are_a_model_a_file_and_the_gpus_to_assume) {
  EXPECT_EQ(options_of(parse({})).output, "cluster.yaml");
  const InitOptions given = options_of(parse({"--model", "m", "-o", "-", "--assume-gpu=80GB:4"}));
  EXPECT_EQ(given.model, "m");
  EXPECT_EQ(given.output, "-");
  ASSERT_TRUE(given.assumed_gpus.has_value());
  EXPECT_EQ(given.assumed_gpus->count, 4);
  EXPECT_EQ(given.assumed_gpus->memory_bytes, 80'000'000'000U);
}

TEST(InitOptions, say_what_to_do_about_a_mistake) {
  expect_refused(parse, {{{test::source_path()},
                          "needs --model before it: --model " + test::source_path().string()},
                         {{"nowhere"}, "unexpected argument nowhere"},
                         {{"--modle", "x"}, "did you mean --model?"},
                         {{"--zebra"}, "try launcher init --help"},
                         {{"--output", ""}, "--output"},
                         {{"--model"}, "--model"}});
  expect_help_fits_a_terminal(parse);
}

}  // namespace
}  // namespace troupe
