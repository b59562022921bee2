#include "launcher/cli/command_line.hpp"

#include <sstream>

#include <gtest/gtest.h>

namespace troupe {
namespace {

std::variant<CommandLine, EarlyExit> parse(std::vector<std::string> arguments) {
  return parse_command_line(arguments);
}

CommandLine parsed(std::vector<std::string> arguments) {
  auto result = parse(std::move(arguments));
  if (const auto* exit = std::get_if<EarlyExit>(&result)) {
    ADD_FAILURE() << "expected a command, came: " << exit->text;
    return {};
  }
  return std::get<CommandLine>(result);
}

TEST(CommandLine, reads_a_run_with_all_its_options) {
  const CommandLine line = parsed({"--config", "c.yaml", "--set", "engine.block_size=32", "--input",
                                   "in.jsonl", "--output=out.jsonl", "--set", "name=a b",
                                   "--overwrite", "--quiet", "--log-level", "debug"});
  EXPECT_EQ(line.command, CommandLine::Command::run);
  EXPECT_EQ(line.config_path, "c.yaml");
  ASSERT_EQ(line.overrides.size(), 4U);
  EXPECT_EQ(line.overrides[0].key, "engine.block_size");
  EXPECT_EQ(line.overrides[0].value, "32");
  EXPECT_EQ(line.overrides[0].origin, "--set engine.block_size=32");
  EXPECT_EQ(line.overrides[1].value, "a b");
  EXPECT_EQ(line.overrides[2].key, "job.input");
  EXPECT_EQ(line.overrides[2].value, "in.jsonl");
  EXPECT_EQ(line.overrides[2].origin, "--input in.jsonl");
  EXPECT_EQ(line.overrides[3].key, "job.output");
  EXPECT_EQ(line.overrides[3].value, "out.jsonl");
  EXPECT_TRUE(line.overwrite);
  EXPECT_TRUE(line.quiet);
  EXPECT_EQ(line.log_level, log::Level::debug);
}

TEST(CommandLine, has_quiet_defaults) {
  const CommandLine line = parsed({"--config", "c.yaml"});
  EXPECT_FALSE(line.overwrite);
  EXPECT_FALSE(line.quiet);
  EXPECT_EQ(line.log_level, log::Level::info);
  EXPECT_TRUE(line.overrides.empty());
}

TEST(CommandLine, reads_a_check) {
  const CommandLine line = parsed({"check", "--config", "c.yaml", "--set", "name=x"});
  EXPECT_EQ(line.command, CommandLine::Command::check);
  EXPECT_EQ(line.config_path, "c.yaml");
  EXPECT_EQ(line.overrides.size(), 1U);
}

TEST(CommandLine, says_what_to_do_about_a_mistake) {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;  // a part of it
  };
  const std::vector<Case> table = {
      {{}, "launcher --config configs/demo/cluster.yaml"},
      {{"check"}, "which topology? Give --config FILE"},
      {{"--conifg", "c.yaml"}, "unknown option --conifg; did you mean --config?"},
      {{"--config", "c.yaml", "--ouput=x"}, "unknown option --ouput; did you mean --output?"},
      {{"--config", "c.yaml", "--overwirte"}, "did you mean --overwrite?"},
      {{"--config", "c.yaml", "--loglevel", "debug"}, "did you mean --log-level?"},
      {{"--config", "c.yaml", "--zebra"}, "unknown option --zebra; try launcher --help"},
      {{"chekc", "--config", "c.yaml"}, "unknown command chekc; did you mean check?"},
      {{"c.yaml"}, "c.yaml needs --config before it: --config c.yaml"},
      {{"--config", "c.yaml", "more"}, "unexpected argument more"},
      {{"--config"}, "--config"},
      {{"--config", "a.yaml", "--config", "b.yaml"}, "--config is given more than once"},
      {{"--config", ""}, "--config needs a file name"},
      {{"--config", "c.yaml", "--set", "block_size"}, "--set block_size: expected key=value"},
      {{"--config", "c.yaml", "--log-level", "loud"}, "--log-level: "},
      {{"--config", "c.yaml", "--quiet=maybe"}, "quiet"},
  };
  for (const auto& [arguments, message] : table) {
    const auto result = parse(arguments);
    const auto* exit = std::get_if<EarlyExit>(&result);
    ASSERT_NE(exit, nullptr) << message;
    EXPECT_EQ(exit->code, ExitCode::refused) << message;
    EXPECT_TRUE(exit->to_stderr);
    EXPECT_NE(exit->text.find(message), std::string::npos)
        << "expected \"" << message << "\" in: " << exit->text;
    EXPECT_TRUE(exit->text.starts_with("launcher: ")) << exit->text;
    EXPECT_TRUE(exit->text.ends_with("\n"));
  }
}

TEST(CommandLine, reads_a_bench) {
  const CommandLine line =
      parsed({"bench", "latency", "--config", "c.yaml", "--num-prompts", "7", "--input-len", "3:9",
              "--output-len=4", "--seed", "11", "--json", "f.json", "--set", "name=x", "-q"});
  EXPECT_EQ(line.command, CommandLine::Command::bench);
  EXPECT_EQ(line.config_path, "c.yaml");
  EXPECT_EQ(line.overrides.size(), 1U);
  EXPECT_EQ(line.bench.kind, BenchOptions::Kind::latency);
  EXPECT_EQ(line.bench.num_prompts, 7);
  EXPECT_EQ(line.bench.input_len, (LengthRange{3, 9}));
  EXPECT_EQ(line.bench.output_len, (LengthRange{4, 4}));
  EXPECT_EQ(line.bench.seed, 11U);
  EXPECT_EQ(line.bench.json, "f.json");
  const CommandLine starts = parsed({"bench", "startup", "--config", "c.yaml", "--repeat", "2"});
  EXPECT_EQ(starts.bench.kind, BenchOptions::Kind::startup);
  EXPECT_EQ(starts.bench.repeat, 2);
  EXPECT_EQ(starts.bench.output_len, (LengthRange{1, 1}));
}

TEST(CommandLine, says_what_to_do_about_a_mistake_in_a_bench) {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;  // a part of it
  };
  const std::vector<Case> table = {
      {{}, "bench what? throughput, latency, startup or schedule"},
      {{"latenc"}, "bench what? throughput, latency, startup or schedule, not latenc"},
      {{"--config", "c.yaml"}, "bench what?"},
      {{"latency"}, "which topology? Give --config FILE"},
      {{"latency", "--config", "c", "--input-len", "0"},
       "--input-len: expected a number of tokens"},
      {{"latency", "--config", "c", "--input-len", "9:8"}, "found 9:8"},
      {{"latency", "--config", "c", "--output-len", "8x"}, "found 8x"},
      {{"latency", "--config", "c", "--num-prompts", "0"}, "--num-prompts"},
      {{"latency", "--config", "c", "--repeat", "2"}, "--repeat has no effect on bench latency"},
      {{"startup", "--config", "c", "--num-prompts", "2"}, "--num-prompts has no effect"},
      {{"latency", "--config", "c", "--workload", "w", "--input-len", "2"},
       "--input-len has no effect on --workload"},
      {{"latency", "--config", "c", "--output", "o"}, "--output is not for bench"},
      {{"latency", "--config", "c", "--num-promts", "2"}, "did you mean --num-prompts?"},
      {{"latency", "--config", "c", "--zebra"}, "try launcher bench --help"},
  };
  for (const auto& [arguments, message] : table) {
    std::vector<std::string> all = arguments;
    all.insert(all.begin(), "bench");
    const auto result = parse(all);
    const auto* exit = std::get_if<EarlyExit>(&result);
    ASSERT_NE(exit, nullptr) << message;
    EXPECT_EQ(exit->code, ExitCode::refused) << message;
    EXPECT_NE(exit->text.find(message), std::string::npos)
        << "expected \"" << message << "\" in: " << exit->text;
  }
}

TEST(CommandLine, gives_help_and_version_whatever_else_is_there) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"-h"},
                                                    {"help"},
                                                    {"check", "--help"},
                                                    {"--config", "--zebra", "--help"}}) {
    const auto result = parse(arguments);
    const auto* exit = std::get_if<EarlyExit>(&result);
    ASSERT_NE(exit, nullptr);
    EXPECT_EQ(exit->code, ExitCode::all_answered);
    EXPECT_FALSE(exit->to_stderr);
    EXPECT_EQ(exit->text, help_text());
  }
  const auto bench = parse({"bench", "latency", "--help"});
  EXPECT_EQ(std::get<EarlyExit>(bench).text, bench_help_text());
  const auto result = parse({"--version"});
  EXPECT_EQ(std::get<EarlyExit>(result).text, version_text());
  EXPECT_NE(version_text().find("0.1.0"), std::string::npos);
}

TEST(CommandLine, help_fits_80_columns_and_names_every_exit_code) {
  std::istringstream lines(help_text() + bench_help_text());
  std::string line;
  while (std::getline(lines, line)) EXPECT_LE(line.size(), 80U) << line;
  for (const char* code : {"\n  0 ", "\n  1 ", "\n  2 ", "\n  3 ", "\n  4 ", "\n  130 "}) {
    EXPECT_NE(help_text().find(code), std::string::npos) << code;
  }
}

}  // namespace
}  // namespace troupe
