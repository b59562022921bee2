#include "launcher/bench/schedule/schedule_bench.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tests/support/checkpoint_folder.hpp"
#include "tests/unit/launcher/cli/parsed_arguments.hpp"

namespace troupe {
namespace {

using golden::TemporaryFolder;
using testing::HasSubstr;

ScheduleOptions parsed(const std::vector<std::string>& arguments) {
  return options_of(parse_for<ScheduleArguments>("bench schedule", arguments));
}

ScheduleComparison compared(const ScheduleOptions& options) {
  auto comparison = compare_policies(options);
  EXPECT_TRUE(comparison.ok()) << (comparison.ok() ? "" : comparison.error().message);
  return comparison.ok() ? *std::move(comparison) : ScheduleComparison{};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(ScheduleBench, has_a_line_for_each_policy_in_the_order_asked_for) {
  const auto options = parsed({"--num-prompts=60", "--policies", "sjf,deadline,fcfs"});
  const auto lines = lines_of(table_of(compared(options)));
  ASSERT_EQ(lines.size(), 9U);
  EXPECT_THAT(lines[1], HasSubstr("60 over "));
  EXPECT_TRUE(lines[6].starts_with("sjf ")) << lines[6];
  EXPECT_TRUE(lines[7].starts_with("deadline ")) << lines[7];
  EXPECT_TRUE(lines[8].starts_with("fcfs ")) << lines[8];
}

TEST(ScheduleBench, keeps_the_table_within_79_columns_whatever_the_figures) {
  ScheduleComparison comparison;
  comparison.requests = 1'000'000;
  comparison.prompt_tokens = comparison.output_tokens = 1'000'000'000;
  comparison.last_arrival_s = 123'456;
  for (const double scale : {0.0, 1.0, 9.9996, 99.96, 999.96, 99'999.0}) {
    ScheduleTotals totals;
    totals.makespan_s = totals.output_tokens_per_s = scale;
    totals.first_token_us.mean = totals.first_token_us.p99 = scale * 1e6;
    totals.end_to_end_us = totals.first_token_us;
    totals.goodput = 1.0;
    totals.deadline_misses = 9'999;
    totals.preemptions = 99'999;
    totals.prefix_tokens = 999'999;
    comparison.rows.push_back({"priority", totals});
  }
  const auto lines = lines_of(table_of(comparison));
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_LE(lines[i].size(), 79U) << lines[i];
  ASSERT_EQ(lines.size(), 6 + comparison.rows.size());
  for (std::size_t i = 6; i < lines.size(); ++i) EXPECT_EQ(lines[i].size(), lines[5].size());
}

TEST(ScheduleBench, tells_of_swaps_where_there_were_any) {
  const auto options = parsed({"--num-prompts=40", "--rate=0", "--lengths=fixed", "--input-len=64",
                               "--output-len=256", "--kv-cache-blocks=400", "--swap-blocks=1000",
                               "--policies", "fcfs,sjf", "--no-prefix-caching"});
  const auto comparison = compared(options);
  const std::string table = table_of(comparison);
  ASSERT_GT(comparison.rows[0].totals.swaps, 0U);
  EXPECT_THAT(table, HasSubstr("\nswaps     fcfs " +
                               std::to_string(comparison.rows[0].totals.swaps) + ", sjf "));
  const auto json = nlohmann::json::parse(json_of(options, comparison));
  EXPECT_EQ(json["scheduler"]["swap_blocks"], 1000);
  EXPECT_EQ(json["policies"][0]["swaps"], comparison.rows[0].totals.swaps);
}

TEST(ScheduleBench, tells_all_totals_as_json) {
  const auto options = parsed({"--num-prompts", "40", "--prefix-share", "0.5", "--prefix-len", "64",
                               "--policies", "fcfs,sjf", "--seed", "5"});
  const auto comparison = compared(options);
  const auto json = nlohmann::json::parse(json_of(options, comparison));
  EXPECT_EQ(json["trace"]["requests"], 40);
  EXPECT_EQ(json["trace"]["seed"], 5);
  EXPECT_TRUE(json["trace"]["workload"].is_null());
  EXPECT_EQ(json["scheduler"]["max_num_seqs"], 32);
  EXPECT_EQ(json["cost"]["stages"], 1);
  ASSERT_EQ(json["policies"].size(), 2U);
  EXPECT_EQ(json["policies"][1]["policy"], "sjf");
  for (std::size_t i = 0; i < 2; ++i) {
    const ScheduleTotals& totals = comparison.rows[i].totals;
    const auto& row = json["policies"][i];
    EXPECT_EQ(row["output_tokens"], comparison.output_tokens);
    EXPECT_DOUBLE_EQ(row["ttft_ms"]["mean"], totals.first_token_us.mean * 1e-3);
    EXPECT_DOUBLE_EQ(row["end_to_end_ms"]["p95"], totals.end_to_end_us.p95 * 1e-3);
    EXPECT_DOUBLE_EQ(row["queueing_ms"]["p99"], totals.queueing_us.p99 * 1e-3);
    EXPECT_DOUBLE_EQ(row["goodput"], totals.goodput);
    EXPECT_DOUBLE_EQ(row["fairness"], totals.fairness);
    EXPECT_EQ(row["prefix_tokens"], totals.prefix_tokens);
    EXPECT_GT(totals.prefix_tokens, 0U);
  }
}

TEST(ScheduleBench, gives_the_same_bytes_for_the_same_seed) {
  const auto options = parsed({"--num-prompts", "80", "--seed", "11"});
  EXPECT_EQ(json_of(options, compared(options)), json_of(options, compared(options)));
  const auto others = parsed({"--num-prompts", "80", "--seed", "12"});
  EXPECT_NE(json_of(options, compared(options)), json_of(others, compared(others)));
}

TEST(ScheduleBench, takes_lengths_from_a_csv_all_at_time_zero) {
  const TemporaryFolder folder;
  const auto file = folder.write("lengths.csv", "prompt_tokens,max_tokens\n100,20\n50,10\n9,9\n");
  const auto comparison =
      compared(parsed({"--workload", file, "--num-prompts", "2", "--policies", "fcfs"}));
  EXPECT_EQ(comparison.requests, 2U);
  EXPECT_EQ(comparison.prompt_tokens, 150);
  EXPECT_EQ(comparison.output_tokens, 30);
  EXPECT_DOUBLE_EQ(comparison.last_arrival_s, 0.0);
}

TEST(ScheduleBench, a_run_writes_its_json_and_ends_with_zero) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "out.json";
  const std::vector<std::string> arguments = {"--num-prompts", "10", "--json", path};
  EXPECT_EQ(run_schedule_bench(parsed(arguments)), ExitCode::all_answered);
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file)["policies"].size(), 4U);
}

TEST(ScheduleBench, what_cannot_run_is_refused) {
  const TemporaryFolder folder;
  const auto ends_with = [](const std::vector<std::string>& arguments) {
    return run_schedule_bench(parsed(arguments));
  };
  EXPECT_EQ(ends_with({"--workload", folder.path() / "none.csv"}), ExitCode::refused);
  EXPECT_EQ(ends_with({"--kv-cache-blocks", "1"}), ExitCode::refused);
  EXPECT_EQ(ends_with({"--num-prompts", "5", "--json", folder.path()}), ExitCode::refused);
}

}  // namespace
}  // namespace troupe
