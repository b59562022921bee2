#include "launcher/cli/run_options.hpp"

#include "launcher/cli/check_options.hpp"
#include "tests/unit/launcher/cli/parsed_arguments.hpp"

namespace troupe {
namespace {

Parsed<RunOptions> parse(const std::vector<std::string>& arguments) {
  return parse_for<RunArguments>("run", arguments);
}

RunOptions parsed(const std::vector<std::string>& arguments) {
  return options_of(parse(arguments));
}

TEST(RunOptions, hold_all_that_is_given) {
  const RunOptions run = parsed({"--config", "c.yaml", "--set", "engine.block_size=32", "--input",
                                 "in.jsonl", "--output=out.jsonl", "--set", "name=a b",
                                 "--overwrite", "--quiet", "--log-level", "debug"});
  EXPECT_EQ(run.config.path, "c.yaml");
  const auto& overrides = run.config.overrides;
  ASSERT_EQ(overrides.size(), 4U);
  EXPECT_EQ(overrides[0].key, "engine.block_size");
  EXPECT_EQ(overrides[0].value, "32");
  EXPECT_EQ(overrides[0].origin, "--set engine.block_size=32");
  EXPECT_EQ(overrides[1].value, "a b");
  EXPECT_EQ(overrides[2].key, "job.input");
  EXPECT_EQ(overrides[2].value, "in.jsonl");
  EXPECT_EQ(overrides[2].origin, "--input in.jsonl");
  EXPECT_EQ(overrides[3].key, "job.output");
  EXPECT_EQ(overrides[3].value, "out.jsonl");
  EXPECT_TRUE(run.overwrite);
  EXPECT_TRUE(run.quiet);
  EXPECT_EQ(run.log_level, log::Level::debug);
}

TEST(RunOptions, have_short_names_and_take_a_model_without_a_file) {
  const RunOptions run = parsed({"-m", "models/x", "-i", "in.jsonl", "-o", "-"});
  EXPECT_EQ(run.config.path, "");
  ASSERT_EQ(run.config.overrides.size(), 3U);
  EXPECT_EQ(run.config.overrides[0].key, "model.path");
  EXPECT_EQ(run.config.overrides[0].value, "models/x");
  EXPECT_EQ(run.config.overrides[2].value, "-");
  const RunOptions both = parsed({"-c", "c.yaml", "--model", "models/x"});
  EXPECT_EQ(both.config.path, "c.yaml");
  EXPECT_EQ(both.config.overrides[0].origin, "--model models/x");
}

TEST(RunOptions, are_modest_by_default) {
  const RunOptions run = parsed({"--config", "c.yaml"});
  EXPECT_FALSE(run.overwrite);
  EXPECT_FALSE(run.resume_asked);
  EXPECT_FALSE(run.quiet);
  EXPECT_FALSE(run.json_progress);
  EXPECT_EQ(run.log_level, log::Level::info);
  EXPECT_TRUE(run.config.overrides.empty());
}

TEST(RunOptions, say_how_to_resume) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"--resume", "auto"}, {"--resume=force", "force"}, {"--resume=never", "never"}};
  for (const auto& [option, value] : table) {
    const RunOptions run = parsed({"--config", "c.yaml", option});
    ASSERT_EQ(run.config.overrides.size(), 1U) << option;
    EXPECT_EQ(run.config.overrides[0].key, "job.resume") << option;
    EXPECT_EQ(run.config.overrides[0].value, value) << option;
    EXPECT_EQ(run.resume_asked, value != "never") << option;
  }
}

TEST(RunOptions, say_what_to_do_about_a_mistake) {
  expect_refused(
      parse,
      {{{}, "launcher --config configs/demo/cluster.yaml"},
       {{"--conifg", "c.yaml"}, "unknown option --conifg; did you mean --config?"},
       {{"--config", "c.yaml", "--ouput=x"}, "unknown option --ouput; did you mean --output?"},
       {{"--config", "c.yaml", "--overwirte"}, "did you mean --overwrite?"},
       {{"--config", "c.yaml", "--loglevel", "debug"}, "did you mean --log-level?"},
       {{"--config", "c.yaml", "--overwrite", "--resume"},
        "give --resume or --overwrite, not both"},
       {{"--config", "c.yaml", "--zebra"}, "unknown option --zebra; try launcher run --help"},
       {{"c.yaml"}, "c.yaml needs --config before it: --config c.yaml"},
       {{"--config", "c.yaml", "more"}, "unexpected argument more; try launcher run --help"},
       {{"--config"}, "--config"},
       {{"--config", "a.yaml", "--config", "b.yaml"}, "--config is given more than once"},
       {{"--config", ""}, "--config needs a name"},
       {{"--config", "c.yaml", "--set", "block_size"}, "--set block_size: expected key=value"},
       {{"--config", "c.yaml", "--log-level", "loud"}, "--log-level: "},
       {{"--config", "c.yaml", "--quiet=maybe"}, "quiet"},
       {{"--config", "c.yaml", "-q", "--json-progress"}, "--quiet or --json-progress, not both"},
       {{"--config", "c.yaml", "--show-answers", "x"},
        "--show-answers: expected a whole number from 0 to 1000000, found x"},
       {{"--config", "c.yaml", "--show-answers", "-1"}, "from 0 to 1000000, found -1"}});
}

TEST(RunOptions, have_help_that_names_every_exit_code) {
  expect_help_fits_a_terminal(parse);
  const std::string help = std::get<EarlyExit>(parse({"--help"})).text;
  for (const char* code : {"\n  0 ", "\n  1 ", "\n  2 ", "\n  3 ", "\n  4 ", "\n  130 "}) {
    EXPECT_NE(help.find(code), std::string::npos) << code;
  }
}

TEST(CheckOptions, are_those_of_a_run_and_the_gpus_to_assume) {
  const auto parse_check = [](const std::vector<std::string>& arguments) {
    return parse_for<CheckArguments>("check", arguments);
  };
  const CheckOptions check =
      options_of(parse_check({"--config", "c.yaml", "-i", "in", "--assume-gpu", "H200:8"}));
  EXPECT_EQ(check.run.config.path, "c.yaml");
  ASSERT_TRUE(check.assumed_gpus.has_value());
  EXPECT_EQ(check.assumed_gpus->count, 8);
  EXPECT_FALSE(options_of(parse_check({"--config", "c.yaml"})).assumed_gpus.has_value());
  expect_refused(parse_check,
                 {{{"--config", "c", "--assume-gpu", "H200:0"}, "expected how many"},
                  {{"--config", "c", "--assume-gpu", "A100:8"}, "compute capability 9.0"},
                  {{"--config", "c", "--assume-gpu", "zebra"}, "H100, H100-NVL, H200"}});
  expect_help_fits_a_terminal(parse_check);
}

}  // namespace
}  // namespace troupe
