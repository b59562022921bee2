#include "launcher/cli/command_line.hpp"

#include <limits>
#include <sstream>

#include <gtest/gtest.h>

#include "launcher/cli/init_options.hpp"

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

TEST(CommandLine, reads_how_to_resume) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"--resume", "auto"}, {"--resume=force", "force"}, {"--resume=never", "never"}};
  for (const auto& [option, value] : table) {
    const CommandLine line = parsed({"--config", "c.yaml", option});
    ASSERT_EQ(line.overrides.size(), 1U) << option;
    EXPECT_EQ(line.overrides[0].key, "job.resume") << option;
    EXPECT_EQ(line.overrides[0].value, value) << option;
    EXPECT_EQ(line.resume_asked, value != "never") << option;
  }
  EXPECT_FALSE(parsed({"--config", "c.yaml"}).resume_asked);
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
      {{"--config", "c.yaml", "--overwrite", "--resume"}, "give --resume or --overwrite, not both"},
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
      {{"--config", "c.yaml", "-q", "--json-progress"}, "--quiet or --json-progress, not both"},
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
  EXPECT_EQ(line.bench.temperature, 0.0F);
  const CommandLine starts = parsed({"bench", "startup", "--config", "c.yaml", "--repeat", "2"});
  EXPECT_EQ(starts.bench.kind, BenchOptions::Kind::startup);
  EXPECT_EQ(starts.bench.repeat, 2);
  EXPECT_EQ(starts.bench.output_len, (LengthRange{1, 1}));
}

TEST(CommandLine, reads_a_sweep) {
  const BenchOptions rates =
      parsed({"bench", "sweep", "--config", "c.yaml", "--rates", "0.5,2,inf", "--ttft-ms", "500",
              "--e2e-ms", "2e3", "--warm-up", "0", "--html", "s.html", "--repeat", "1"})
          .bench;
  EXPECT_EQ(rates.kind, BenchOptions::Kind::sweep);
  EXPECT_TRUE(rates.sweep.by_rate);
  EXPECT_EQ(rates.sweep.loads,
            (std::vector<double>{0.5, 2, std::numeric_limits<double>::infinity()}));
  EXPECT_EQ(rates.sweep.ttft_ms, 500.0);
  EXPECT_FALSE(rates.sweep.tpot_ms.has_value());
  EXPECT_EQ(rates.sweep.e2e_ms, 2000.0);
  EXPECT_EQ(rates.sweep.warm_up, 0);
  EXPECT_EQ(rates.sweep.html, "s.html");
  EXPECT_EQ(rates.repeat, 1);
  const SweepOptions at_once =
      parsed({"bench", "sweep", "--config", "c.yaml", "--at-once", "1,8"}).bench.sweep;
  EXPECT_FALSE(at_once.by_rate);
  EXPECT_EQ(at_once.loads, (std::vector<double>{1, 8}));
  EXPECT_FALSE(at_once.has_limits());
}

TEST(CommandLine, reads_progress_for_programs) {
  EXPECT_TRUE(parsed({"--config", "c.yaml", "--json-progress"}).json_progress);
  EXPECT_FALSE(parsed({"--config", "c.yaml"}).json_progress);
}

TEST(CommandLine, prints_the_reference_of_the_configuration) {
  const auto result = parse({"reference"});
  const auto& exit = std::get<EarlyExit>(result);
  EXPECT_EQ(exit.code, ExitCode::all_answered);
  EXPECT_TRUE(exit.text.starts_with("# Configuration\n")) << exit.text;
  EXPECT_EQ(std::get<EarlyExit>(parse({"reference", "x"})).code, ExitCode::refused);
}

TEST(CommandLine, says_what_to_do_about_a_mistake_in_a_bench) {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;  // a part of it
  };
  const std::vector<Case> table = {
      {{},
       "bench what? throughput, latency, startup, sweep, ops, collectives, weights or schedule"},
      {{"latenc"},
       "bench what? throughput, latency, startup, sweep, ops, collectives, weights or schedule, "
       "not latenc"},
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
      {{"latency", "--config", "c", "--temperature", "nan"},
       "--temperature: expected 0 to 100, found nan"},
      {{"latency", "--config", "c", "--workload", "w.jsonl", "--temperature", "1"},
       "--temperature has no effect on the requests of a batch file"},
      {{"latency", "--config", "c", "--output", "o"}, "--output is not for bench"},
      {{"latency", "--config", "c", "--rates", "1"}, "--rates has no effect on bench latency"},
      {{"startup", "--config", "c", "--html", "x"}, "--html has no effect on bench startup"},
      {{"sweep", "--config", "c", "--rates", "1", "--at-once", "1"}, "not both"},
      {{"sweep", "--config", "c", "--rates", "2,1"}, "--rates: expected ascending numbers"},
      {{"sweep", "--config", "c", "--rates", "1,,2"}, "found 1,,2"},
      {{"sweep", "--config", "c", "--rates", "nan"}, "found nan"},
      {{"sweep", "--config", "c", "--at-once", "1.5"}, "such as 1,4,16, found 1.5"},
      {{"sweep", "--config", "c", "--at-once", "inf"}, "found inf"},
      {{"sweep", "--config", "c", "--ttft-ms", "-1"}, "--ttft-ms"},
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

TEST(InitOptions, are_a_model_and_a_file) {
  const auto parse_init = [](std::vector<std::string> arguments) {
    return parse_init_options(arguments);
  };
  const auto defaults = parse_init({});
  EXPECT_EQ(std::get<InitOptions>(defaults).output, "cluster.yaml");
  const auto given = parse_init({"--model", "m", "--output=-"});
  EXPECT_EQ(std::get<InitOptions>(given).model, "m");
  EXPECT_EQ(std::get<InitOptions>(given).output, "-");
  EXPECT_EQ(std::get<EarlyExit>(parse_init({"-h"})).text, init_help_text());
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"models/x"}, "a model's folder follows --model"},
      {{"--modle", "x"}, "did you mean --model?"},
      {{"--zebra"}, "try launcher init --help"},
      {{"--output", ""}, "--output"},
      {{"--model"}, "--model"},
  };
  for (const auto& [arguments, message] : mistakes) {
    const auto result = parse_init(arguments);
    const auto* exit = std::get_if<EarlyExit>(&result);
    ASSERT_NE(exit, nullptr) << message;
    EXPECT_EQ(exit->code, ExitCode::refused);
    EXPECT_NE(exit->text.find(message), std::string::npos) << exit->text;
  }
}

TEST(CommandLine, help_fits_80_columns_and_names_every_exit_code) {
  std::istringstream lines(help_text() + bench_help_text() + init_help_text());
  std::string line;
  while (std::getline(lines, line)) EXPECT_LE(line.size(), 80U) << line;
  for (const char* code : {"\n  0 ", "\n  1 ", "\n  2 ", "\n  3 ", "\n  4 ", "\n  130 "}) {
    EXPECT_NE(help_text().find(code), std::string::npos) << code;
  }
}

}  // namespace
}  // namespace troupe
