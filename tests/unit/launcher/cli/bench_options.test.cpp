#include "launcher/cli/bench_options.hpp"

#include <limits>

#include "tests/unit/launcher/cli/parsed_arguments.hpp"

namespace troupe {
namespace {

using Kind = BenchOptions::Kind;

Parsed<BenchOptions> parse(Kind kind, const std::vector<std::string>& arguments) {
  return parse_for<BenchArguments>("bench " + std::string(to_string(kind)), arguments, kind);
}

BenchOptions parsed(Kind kind, const std::vector<std::string>& arguments) {
  return options_of(parse(kind, arguments));
}

TEST(BenchOptions, hold_all_that_is_given) {
  const BenchOptions bench =
      parsed(Kind::latency,
             {"--config", "c.yaml", "--num-prompts", "7", "--input-len", "3:9", "--output-len=4",
              "--seed", "11", "--json", "f.json", "--set", "name=x", "-q"});
  EXPECT_EQ(bench.config.path, "c.yaml");
  EXPECT_EQ(bench.config.overrides.size(), 1U);
  EXPECT_EQ(bench.kind, Kind::latency);
  EXPECT_TRUE(bench.quiet);
  EXPECT_EQ(bench.num_prompts, 7);
  EXPECT_EQ(bench.input_len, (LengthRange{3, 9}));
  EXPECT_EQ(bench.output_len, (LengthRange{4, 4}));
  EXPECT_EQ(bench.seed, 11U);
  EXPECT_EQ(bench.json, "f.json");
  EXPECT_EQ(bench.temperature, 0.0F);
  const BenchOptions starts = parsed(Kind::startup, {"--config", "c.yaml", "--repeat", "2"});
  EXPECT_EQ(starts.kind, Kind::startup);
  EXPECT_EQ(starts.repeat, 2);
  EXPECT_EQ(starts.output_len, (LengthRange{1, 1}));
}

TEST(BenchOptions, of_a_sweep_have_loads_and_limits) {
  const BenchOptions rates = parsed(
      Kind::sweep, {"--config", "c.yaml", "--rates", "0.5,2,inf", "--ttft-ms", "500", "--e2e-ms",
                    "2e3", "--warm-up", "0", "--html", "s.html", "--repeat", "1"});
  EXPECT_EQ(rates.kind, Kind::sweep);
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
      parsed(Kind::sweep, {"--config", "c.yaml", "--at-once", "1,8"}).sweep;
  EXPECT_FALSE(at_once.by_rate);
  EXPECT_EQ(at_once.loads, (std::vector<double>{1, 8}));
  EXPECT_FALSE(at_once.has_limits());
}

TEST(BenchOptions, of_faults_have_kinds_and_times) {
  const BenchOptions bench =
      parsed(Kind::faults,
             {"--config", "c.yaml", "--kinds", "worker,link", "--count", "30", "--interval", "0.5",
              "--outage", "3", "--link-device", "eth0", "--seed", "4", "--alter-request"});
  EXPECT_EQ(bench.faults.kinds, (std::vector<FaultKind>{FaultKind::worker, FaultKind::link}));
  EXPECT_EQ(bench.faults.count, 30);
  EXPECT_EQ(bench.faults.interval_seconds, 0.5);
  EXPECT_EQ(bench.faults.outage_seconds, 3);
  EXPECT_EQ(bench.faults.link_device, "eth0");
  EXPECT_TRUE(bench.faults.alters_request);
  EXPECT_EQ(bench.seed, 4U);
  EXPECT_EQ(bench.temperature, 1.0F);
  EXPECT_TRUE(parsed(Kind::faults, {"--config", "c.yaml"}).faults.kinds.empty());
}

TEST(BenchOptions, say_what_to_do_about_a_mistake) {
  const auto expect = [](Kind kind, const Mistakes& mistakes) {
    expect_refused([kind](const auto& arguments) { return parse(kind, arguments); }, mistakes);
  };
  expect(Kind::latency,
         {{{}, "which topology? Give --config FILE"},
          {{"--config", "c", "--input-len", "0"}, "--input-len: expected a number of tokens"},
          {{"--config", "c", "--input-len", "9:8"}, "found 9:8"},
          {{"--config", "c", "--output-len", "8x"}, "found 8x"},
          {{"--config", "c", "--num-prompts", "0"},
           "--num-prompts: expected a whole number from 1 to 1048576, found 0"},
          {{"--config", "c", "--repeat", "2"}, "unknown option --repeat"},
          {{"--config", "c", "--workload", "w", "--input-len", "2"},
           "--input-len has no effect on --workload"},
          {{"--config", "c", "--temperature", "nan"},
           "--temperature: expected a number from 0 to 100, found nan"},
          {{"--config", "c", "--workload", "w.jsonl", "--temperature", "1"},
           "--temperature has no effect on the requests of a batch file"},
          {{"--config", "c", "--num-promts", "2"}, "did you mean --num-prompts?"},
          {{"--config", "c", "--zebra"}, "try launcher bench latency --help"}});
  expect(Kind::startup, {{{"--config", "c", "--num-prompts", "2"}, "unknown option --num-prompts"},
                         {{"--config", "c", "--html", "x"}, "unknown option --html"}});
  expect(Kind::sweep, {{{"--config", "c", "--rates", "1", "--at-once", "1"}, "not both"},
                       {{"--config", "c", "--rates", "2,1"}, "--rates: expected ascending numbers"},
                       {{"--config", "c", "--rates", "1,,2"}, "found 1,,2"},
                       {{"--config", "c", "--rates", "nan"}, "found nan"},
                       {{"--config", "c", "--at-once", "1.5"}, "such as 1,4,16, found 1.5"},
                       {{"--config", "c", "--at-once", "inf"}, "found inf"},
                       {{"--config", "c", "--ttft-ms", "-1"}, "--ttft-ms"}});
  expect(Kind::faults,
         {{{"--config", "c", "--kinds", "worker,wroker"}, "found worker,wroker"},
          {{"--config", "c", "--kinds", "stop,stop"}, "each once, found stop,stop"},
          {{"--config", "c", "--kinds", "link"}, "--link-device"},
          {{"--config", "c", "--link-device", "eth0"}, "no effect without --kinds link"},
          {{"--config", "c", "--count", "0"}, "--count"},
          {{"--config", "c", "--outage", "1"}, "--outage: expected a number from 2.5 to 3600"}});
}

TEST(BenchOptions, have_help_that_fits_a_terminal) {
  for (const Kind kind :
       {Kind::throughput, Kind::latency, Kind::startup, Kind::sweep, Kind::faults}) {
    expect_help_fits_a_terminal([kind](const auto& arguments) { return parse(kind, arguments); });
  }
}

}  // namespace
}  // namespace troupe
