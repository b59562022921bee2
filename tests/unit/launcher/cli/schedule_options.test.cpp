#include "launcher/cli/schedule_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/parsed_arguments.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;

Parsed<ScheduleOptions> parse(const std::vector<std::string>& arguments) {
  return parse_for<ScheduleArguments>("bench schedule", arguments);
}

ScheduleOptions parsed(const std::vector<std::string>& arguments) {
  return options_of(parse(arguments));
}

TEST(ScheduleOptions, compares_all_policies_with_asynchronous_scheduling_if_nothing_is_said) {
  const auto options = parsed({});
  EXPECT_THAT(options.policies, ElementsAre("fcfs", "priority", "sjf", "deadline"));
  EXPECT_EQ(options.scheduler.micro_batches, 1);
  EXPECT_EQ(options.scheduler.max_steps_in_flight, 2);
  EXPECT_TRUE(options.scheduler.chunked_prefill);
  EXPECT_TRUE(options.scheduler.prefix_caching);
  EXPECT_EQ(options.scheduler.swap_blocks, 0);
  EXPECT_EQ(options.trace.max_sequence_tokens, options.scheduler.max_model_len);
  EXPECT_TRUE(options.workload.empty());
  EXPECT_TRUE(options.json_path.empty());
}

TEST(ScheduleOptions, reads_the_trace_and_its_targets) {
  const auto options =
      parsed({"--num-prompts",  "7",    "--rate",       "2.5",     "--input-len",       "30",
              "--output-len",   "40",   "--lengths",    "uniform", "--stop-early",      "0.25",
              "--prefix-share", "0.5",  "--prefix-len", "64",      "--prefix-families", "3",
              "--seed",         "9",    "--ttft-ms",    "1.5",     "--tpot-ms",         "0.25",
              "--urgent-share", "0.75", "--patience",   "4"});
  EXPECT_EQ(options.trace.requests, 7);
  EXPECT_DOUBLE_EQ(options.trace.requests_per_s, 2.5);
  EXPECT_EQ(options.trace.mean_prompt_tokens, 30);
  EXPECT_EQ(options.trace.mean_max_tokens, 40);
  EXPECT_EQ(options.trace.spread, LengthSpread::uniform);
  EXPECT_DOUBLE_EQ(options.trace.stopping_share, 0.25);
  EXPECT_DOUBLE_EQ(options.trace.prefix_share, 0.5);
  EXPECT_EQ(options.trace.prefix_tokens, 64);
  EXPECT_EQ(options.trace.prefix_families, 3);
  EXPECT_EQ(options.trace.seed, 9U);
  EXPECT_EQ(options.targets.seed, 9U);
  EXPECT_EQ(options.targets.first_token_us, 1'500);
  EXPECT_EQ(options.targets.each_token_us, 250);
  EXPECT_DOUBLE_EQ(options.targets.urgent_share, 0.75);
  EXPECT_DOUBLE_EQ(options.targets.patience, 4.0);
}

TEST(ScheduleOptions, reads_the_bounds_the_costs_and_the_files) {
  const auto options =
      parsed({"--policies=sjf,fcfs", "--max-num-seqs=8", "--max-num-batched-tokens=512",
              "--max-model-len=400", "--block-size=32", "--kv-cache-blocks=99", "--swap-blocks=77",
              "--stages=3", "--steps-in-flight=5", "--no-chunked-prefill", "--no-prefix-caching",
              "--us-per-step=1", "--us-per-token=2", "--us-per-kv-token=0.5", "--us-per-plan=4",
              "--workload=lengths.csv", "--json=out.json"});
  EXPECT_THAT(options.policies, ElementsAre("sjf", "fcfs"));
  EXPECT_EQ(options.scheduler.max_num_seqs, 8);
  EXPECT_EQ(options.scheduler.max_num_batched_tokens, 512);
  EXPECT_EQ(options.scheduler.max_model_len, 400);
  EXPECT_EQ(options.trace.max_sequence_tokens, 400);
  EXPECT_EQ(options.scheduler.block_size, 32);
  EXPECT_EQ(options.scheduler.kv_cache_blocks, 99);
  EXPECT_EQ(options.scheduler.swap_blocks, 77);
  EXPECT_EQ(options.scheduler.micro_batches, 3);
  EXPECT_EQ(options.scheduler.max_steps_in_flight, 5);
  EXPECT_FALSE(options.scheduler.chunked_prefill);
  EXPECT_FALSE(options.scheduler.prefix_caching);
  EXPECT_DOUBLE_EQ(options.cost.us_per_step, 1.0);
  EXPECT_DOUBLE_EQ(options.cost.us_per_token, 2.0);
  EXPECT_DOUBLE_EQ(options.cost.us_per_kv_token, 0.5);
  EXPECT_DOUBLE_EQ(options.cost.us_per_plan, 4.0);
  EXPECT_EQ(options.cost.stages, 3);
  EXPECT_EQ(options.workload, "lengths.csv");
  EXPECT_EQ(options.json_path, "out.json");
  EXPECT_GT(options.trace.requests, 1'000'000) << "all of a file";
  EXPECT_EQ(parsed({"--workload=l.csv", "--num-prompts=5"}).trace.requests, 5);
  EXPECT_EQ(parsed({"--stages", "3"}).scheduler.max_steps_in_flight, 4);
}

TEST(ScheduleOptions, says_what_to_do_about_a_mistake) {
  expect_refused(
      parse,
      {{{"--polices", "fcfs"}, "unknown option --polices; did you mean --policies?"},
       {{"--zzz"}, "unknown option --zzz; try launcher bench schedule --help"},
       {{"fcfs"}, "unexpected argument fcfs"},
       {{"--policies", "fcfs,fair"}, "expected one of fcfs, priority, sjf, deadline, found fair"},
       {{"--policies", "sjf,fcfs,sjf"}, "--policies names sjf twice"},
       {{"--rate", "-1"}, "--rate: expected a number from 0 to 1000000, found -1"},
       {{"--max-num-seqs", "0"},
        "--max-num-seqs: expected a whole number from 1 to 65536, found 0"},
       {{"--urgent-share", "1.5"}, "--urgent-share: expected a number from 0 to 1, found 1.5"},
       {{"--lengths", "normal"}, "--lengths: expected one of fixed, uniform, lognormal"},
       {{"--workload", "x.csv", "--rate", "3"}, "--workload excludes --rate"},
       {{"--json"}, "--json"}});
}

TEST(ScheduleOptions, help_fits_a_terminal) { expect_help_fits_a_terminal(parse); }

}  // namespace
}  // namespace troupe
