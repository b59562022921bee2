#include "launcher/progress/progress_view.hpp"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/base/terminal_text.hpp"
#include "tests/unit/launcher/progress/progress_state.hpp"

namespace troupe::progress_test {
namespace {

TEST(ProgressView, shows_everything_on_80_columns) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(10, 250, 12345);
  state.errors = 1;
  view.update(state);
  const auto lines = view.live_lines(80);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], " 250/1000 (25%)   30 s left  1 error  10 s so far");
  EXPECT_EQ(lines[1], " 1.2k tok/s    12 running    34 waiting  KV  56%  prompts  2.5k tok/s");
}

TEST(ProgressView, shows_a_notice_above_as_far_as_it_fits) {
  ProgressView view;
  ProgressState state = state_at(10, 250, 12345);
  state.notice = "waiting 0:35 of at most 5:00 for a node in place of 'h2'";
  view.update(state);
  auto lines = view.live_lines(80);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], state.notice);
  lines = view.live_lines(20);
  EXPECT_EQ(lines[0], "waiting 0:35 of at ");
  EXPECT_EQ(view.log_line().find(state.notice + "; 250/1000"), 0U) << view.log_line();
  EXPECT_EQ(nlohmann::json::parse(view.json_line()).at("notice"), state.notice);
}

TEST(ProgressView, keeps_numbers_in_their_places_on_80_columns) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  std::string before;
  for (int second = 1; second <= 50; ++second) {
    const auto done = 19 * static_cast<std::uint64_t>(second);
    ProgressState state = state_at(second, done, done * 400);
    state.running = done / 10;
    state.waiting = done;
    state.kv_use = second / 50.0;
    view.update(state);
    const std::string line = view.live_lines(80)[1];
    if (!before.empty()) {
      EXPECT_EQ(line.find("running"), before.find("running")) << line;
      EXPECT_EQ(line.find("prompts"), before.find("prompts")) << line;
      EXPECT_EQ(line.size(), before.size()) << line;
    }
    before = line;
  }
}

TEST(ProgressView, leaves_out_the_least_important_on_40_columns) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(10, 250, 12345);
  state.errors = 12;
  view.update(state);
  const auto lines = view.live_lines(40);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "250/1000 (25%)  30 s left  12 errors");
  EXPECT_EQ(lines[1], "1.2k tok/s  12 running  34 waiting");
}

TEST(ProgressView, shows_bars_of_the_job_and_of_each_rank_from_100_columns_on) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(10, 250, 12345);
  state.rank_busy = {0.84, 1.7, 0, 0.46};
  view.update(state);
  EXPECT_EQ(view.live_lines(99).size(), 2U);
  const auto lines = view.live_lines(100);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], "[########----------------------]   250/1000 (25%)   30 s left  10 s so far");
  EXPECT_EQ(lines[2],
            "rank 0   ########--  84%   rank 1   ########## 100%   rank 2   ----------   0%");
  EXPECT_EQ(lines[3], "rank 3   #####-----  46%");
}

TEST(ProgressView, sums_many_ranks_up) {
  ProgressView view;
  ProgressState state = state_at(0, 0, 0);
  state.rank_busy.assign(64, 0.5);
  state.rank_busy[7] = 0.25;
  view.update(state);
  const auto lines = view.live_lines(120);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2], "64 ranks  #####----- 50% busy on average, 25% to 50%");
}

TEST(ProgressView, tells_no_time_left_while_it_drains) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(10, 250, 12345);
  view.update(state);
  EXPECT_NE(view.live_lines(80)[0].find("30 s left"), std::string::npos);
  state.draining = true;
  view.update(state);
  EXPECT_EQ(view.live_lines(80)[0].find("left"), std::string::npos) << view.live_lines(80)[0];
  EXPECT_TRUE(nlohmann::json::parse(view.json_line()).at("remaining_seconds").is_null());
}

TEST(ProgressView, counts_tokens_of_running_requests_before_their_lines_are_done) {
  // 1000 lines of 100 tokens, 100 at a time, at 1000 tokens a second.
  ProgressView view;
  ProgressState state = state_at(0, 0, 0);
  state.running = 100;
  view.update(state);
  state.seconds = 10;
  state.done = 5;  // the first hundred are about to end
  state.output_tokens = 10'000;
  state.finished_tokens = 500;
  state.running = 95;
  view.update(state);
  EXPECT_TRUE(view.log_line().ends_with(", 1:30 left")) << view.log_line();
}

TEST(ProgressView, does_not_take_the_first_short_answers_for_all) {
  ProgressView view;
  ProgressState state = state_at(0, 0, 0);
  view.update(state);
  state.seconds = 10;
  state.done = 10;
  state.finished_tokens = 20;  // two tokens each, while running ones have a hundred
  state.running = 100;
  state.output_tokens = 10'020;
  view.update(state);
  EXPECT_TRUE(view.log_line().ends_with(", 1:29 left")) << view.log_line();
}

TEST(ProgressView, does_not_count_what_was_done_before_it_began) {
  ProgressView view;
  view.update(state_at(0, 600, 0));
  view.update(state_at(10, 700, 1000));
  EXPECT_TRUE(view.log_line().ends_with(", 30 s left")) << view.log_line();
}

TEST(ProgressView, tells_programs_everything_on_a_line) {
  ProgressView view;
  ProgressState loading = state_at(0.5, 0, 0);
  loading.phase = "loading \"a\nb\xff\"";
  loading.total = 0;
  view.update(loading);
  auto line = nlohmann::json::parse(view.json_line());
  EXPECT_EQ(line.at("type"), "progress");
  EXPECT_EQ(line.at("state"), "loading");
  EXPECT_TRUE(line.at("total").is_null()) << line;
  EXPECT_TRUE(line.at("remaining_seconds").is_null()) << line;
  view.update(state_at(1, 0, 0));
  ProgressState state = state_at(11, 250, 12345);
  state.rank_busy = {0.5, 0.25};
  view.update(state);
  line = nlohmann::json::parse(view.json_line());
  const nlohmann::json expected = {{"type", "progress"},
                                   {"state", "running"},
                                   {"notice", ""},
                                   {"seconds", 11.0},
                                   {"done", 250},
                                   {"total", 1000},
                                   {"errors", 0},
                                   {"remaining_seconds", 30.0},
                                   {"running", 12},
                                   {"waiting", 34},
                                   {"kv_use", 0.56},
                                   {"output_tokens", 12345},
                                   {"output_tokens_per_second", 1234.5},
                                   {"prompt_tokens", 24690},
                                   {"prompt_tokens_per_second", 2469.0},
                                   {"prefix_tokens", 0},
                                   {"preemptions", 0},
                                   {"swaps", 0},
                                   {"rank_busy", {0.5, 0.25}}};
  EXPECT_EQ(line, expected);
  line = nlohmann::json::parse(view.json_line("drained"));
  EXPECT_EQ(line.at("state"), "finished");
  EXPECT_EQ(line.at("outcome"), "drained");
  EXPECT_EQ(json_message("a \"b\"\n"), R"({"type":"message","text":"a \"b\"\n"})");
}

TEST(ProgressView, never_reaches_the_last_column) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(1e6, 123456789, 1234567890123);
  state.rank_busy.assign(9, 0.5);
  state.total = 987654321;
  state.errors = 123456;
  view.update(state);
  for (int columns = 0; columns < 200; ++columns) {
    for (const std::string& line : view.live_lines(columns)) {
      EXPECT_LE(static_cast<int>(line.size()), std::max(1, columns - 1)) << line;
    }
  }
}

TEST(ProgressView, takes_the_speed_of_the_last_seconds_and_the_remaining_time_of_the_whole_job) {
  ProgressView view;
  for (int second = 0; second <= 100; ++second) {
    const std::uint64_t tokens = second <= 90 ? 0 : static_cast<std::uint64_t>(second - 90) * 100;
    view.update(state_at(second, static_cast<std::uint64_t>(second), tokens));
  }
  EXPECT_TRUE(view.log_line().starts_with("100/1000 (10%), 0 errors, 100 output tok/s, "))
      << view.log_line();
  EXPECT_TRUE(view.log_line().ends_with(", 15:00 left")) << view.log_line();
}

TEST(ProgressView, does_not_count_loading_as_work) {
  ProgressView view;
  ProgressState loading = state_at(0, 0, 0);
  loading.phase = "loading fable-moe";
  view.update(loading);
  loading.seconds = 60;
  view.update(loading);
  EXPECT_EQ(view.live_lines(80), std::vector<std::string>{"loading fable-moe  1:00"});
  EXPECT_EQ(view.live_lines(10), std::vector<std::string>{"loading f"});
  EXPECT_EQ(view.log_line(), "loading fable-moe, 1:00");
  view.update(state_at(60, 0, 0));
  view.update(state_at(70, 500, 1000));
  EXPECT_TRUE(view.log_line().ends_with(", 10 s left")) << view.log_line();
}

TEST(ProgressView, sums_up) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(20, 1000, 4000);
  state.errors = 2;
  view.update(state);
  EXPECT_EQ(view.summary(),
            "998 answers and 2 error lines in 20 s; 4000 output tokens at 200 tok/s, 8000 prompt "
            "tokens at 400 tok/s");
}

TEST(ProgressView, does_not_count_the_wait_for_input_as_work) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(20, 1000, 4000);
  state.input_wait_seconds = 12;
  view.update(state);
  EXPECT_EQ(view.summary(),
            "1000 answers in 20 s (12 s waiting for input); 4000 output tokens at 500 tok/s, 8000 "
            "prompt tokens at 1.0k tok/s");
}

TEST(ProgressView, tells_tenths_of_a_second_in_the_summary_of_a_brief_job) {
  ProgressView view;
  view.update(state_at(0.5, 3, 0));
  EXPECT_EQ(view.summary(), "3 answers of 1000 lines in 0.5 s");
}

TEST(ProgressView, tells_in_the_summary_what_was_answered_before) {
  ProgressView view;
  ProgressState state = state_at(0.5, 3, 0);
  state.before = 2;
  view.update(state);
  EXPECT_EQ(view.summary(), "3 answers of 1000 lines, 2 of them before this run, in 0.5 s");
}

TEST(ProgressView, survives_an_unknown_total_nonsense_and_time_going_back) {
  ProgressView view;
  EXPECT_EQ(view.live_lines(80).size(), 2U);
  EXPECT_FALSE(view.log_line().empty());
  EXPECT_EQ(view.summary(), "0 answers in 0 s");
  ProgressState state = state_at(5, 7, 100);
  state.total = 0;
  view.update(state);
  state.seconds = 3;
  state.done = 1;
  view.update(state);
  state.seconds = 6;
  state.done = 8;
  state.errors = 20;
  state.output_tokens = 0;
  state.kv_use = 7;
  view.update(state);
  EXPECT_TRUE(view.live_lines(80)[0].starts_with("8 done")) << view.live_lines(80)[0];
  EXPECT_NE(view.live_lines(80)[1].find("KV 100%"), std::string::npos);
  EXPECT_FALSE(view.summary().empty());
}

TEST(ProgressView, fits_a_name_of_wide_characters) {
  ProgressView view;
  ProgressState state;
  state.phase = "loading 物語物語物語物語物語";
  view.update(state);
  for (int columns = 1; columns < 60; ++columns) {
    const auto lines = view.live_lines(columns);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_LE(width_of(lines[0]), static_cast<std::size_t>(std::max(columns - 1, 1))) << columns;
  }
  EXPECT_EQ(view.live_lines(34)[0], "loading 物語物語物語物語物語  0 s");
}

TEST(Format, writes_durations_and_counts_as_people_do) {
  EXPECT_EQ(format_duration(-1), "0 s");
  EXPECT_EQ(format_duration(5.4), "5 s");
  EXPECT_EQ(format_duration(65), "1:05");
  EXPECT_EQ(format_duration(3700), "1:01:40");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(999.9), "1.0k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(4200000), "4.2M");
  EXPECT_EQ(format_count(3e9), "3.0G");
}

}  // namespace
}  // namespace troupe::progress_test
