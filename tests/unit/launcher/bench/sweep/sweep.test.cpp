#include "launcher/bench/sweep/sweep.hpp"

#include <cmath>
#include <limits>
#include <set>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/bench/sweep/sweep_page.hpp"
#include "launcher/bench/sweep/sweep_report.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double inf = std::numeric_limits<double>::infinity();

ModelConfig dense_model() {
  ModelConfig model;
  model.hidden_size = 10;
  model.layers = 2;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 5;
  model.intermediate_size = 30;
  model.vocab_size = 100;
  return model;
}

Outcome answer(double submitted, double first, double finished, std::int64_t prompt,
               std::int64_t output) {
  return {.submitted = submitted,
          .first_token = first,
          .finished = finished,
          .prompt_tokens = prompt,
          .output_tokens = output};
}

TEST(PoissonArrivals, have_the_wanted_rate_and_depend_on_their_seed_alone) {
  const auto arrivals = poisson_arrivals(20'001, 50, 7);
  ASSERT_EQ(arrivals.size(), 20'001U);
  EXPECT_EQ(arrivals[0], 0);
  EXPECT_TRUE(std::is_sorted(arrivals.begin(), arrivals.end()));
  // 400 s on average; the standard deviation of the sum of 20,000 gaps of 20 ms is 2.8 s.
  EXPECT_NEAR(arrivals.back(), 400, 15);
  double square = 0;
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    square += std::pow(arrivals[i] - arrivals[i - 1], 2);
  }
  EXPECT_NEAR(square / 20'000, 2 * 0.02 * 0.02, 0.1 * 0.02 * 0.02) << "gaps are not exponential";
  EXPECT_EQ(poisson_arrivals(100, 50, 7), poisson_arrivals(100, 50, 7));
  EXPECT_NE(poisson_arrivals(100, 50, 7), poisson_arrivals(100, 50, 8));
  EXPECT_EQ(poisson_arrivals(3, inf, 7), (std::vector<double>{0, 0, 0}));
}

/// `steps` steps that computed `tokens` each, of which `sampling` generated some.
StepTally tally(std::uint64_t steps, std::uint64_t tokens, std::uint64_t sampling) {
  return {.by_tokens = {{tokens, steps}}, .sampling = sampling};
}

TEST(StepTally, sorts_steps_by_what_they_computed) {
  StepTally tally;
  StepRecord record;
  record.prompt_tokens = 500;
  tally.add(record);
  record.prompt_tokens = 9;
  record.output_tokens = 3;
  record.steps = 4;
  tally.add(record);
  tally.add(record);
  tally.add(StepRecord{});  // of a replica that had nothing to do
  EXPECT_EQ(tally.by_tokens, (std::map<std::uint64_t, std::uint64_t>{{3, 8}, {500, 1}}));
  EXPECT_EQ(tally.sampling, 8U);
}

TEST(ModelWork, counts_the_multiply_adds_and_bytes_of_a_dense_model) {
  const ModelWork work(dense_model(), 2, 4);
  // A layer: q 10 x 20, k and v 10 x 20 together, o 20 x 10, and three matrices of 10 x 30.
  EXPECT_EQ(work.parameters_per_token(), 2 * (200 + 200 + 200 + 900));
  const std::vector<Outcome> outcomes = {answer(0, 1, 2, 3, 2)};
  // Computed: 3 of the prompt and 1 of the answer; positions 1 to 4 attend to 10 in all; 2 rows of
  // the head; attention is 2 layers x 4 heads x (5 + 5) x 2 per pair.
  EXPECT_EQ(work.operations(outcomes, 3), 2 * 4 * 3000 + 2 * 2 * 1000 + 10 * 160);
  // Two steps of all matrices, one of them with the head, and for the one token that is fed back
  // the KV of the 3 before it: 2 layers x 2 x 2 heads x 5 numbers each.
  EXPECT_EQ(work.bytes(outcomes, tally(2, 2, 1)), (2 * 3000 + 1000) * 2 + 3 * 40 * 4);
  EXPECT_EQ(work.bytes(outcomes, {}), 3 * 40 * 4);
  EXPECT_EQ(ModelWork(dense_model(), 2, 4, 3).bytes({}, tally(2, 2, 1)), 3 * (2 * 3000 + 1000) * 2)
      << "each replica of a domain reads its own";
}

TEST(ModelWork, leaves_out_of_attention_what_a_window_hides) {
  ModelConfig model = dense_model();
  model.windows = {0, 2};
  const ModelWork work(model, 2, 4);
  const std::vector<Outcome> outcomes = {answer(0, 1, 2, 3, 3)};
  // Positions 1 to 5: 1+2+3+4+5 without a window, 1+2+2+2+2 with a window of two.
  EXPECT_EQ(work.operations(outcomes, 3), 2 * 5 * 3000 + 2 * 3 * 1000 + (15 + 9) * 80);
  // Two tokens are fed back: they see 3 and 4 before them, through the window one each.
  EXPECT_EQ(work.bytes(outcomes, {}), (3 + 4 + 1 + 1) * 20 * 4);
}

TEST(ModelWork, does_not_count_what_the_prefix_cache_had) {
  const ModelWork work(dense_model(), 2, 4);
  const std::vector<Outcome> outcomes = {answer(0, 1, 2, 4, 1)};
  // The last two of four positions: they see 3 + 4.
  EXPECT_EQ(work.operations(outcomes, 2), 2 * 2 * 3000 + 2 * 1000 + (3 + 4) * 160);
  // All of them twice, after a preemption.
  EXPECT_EQ(work.operations(outcomes, 8), 2 * 8 * 3000 + 2 * 1000 + 2 * 10 * 160);
}

TEST(ModelWork, takes_choices_for_sequences_of_their_own) {
  const ModelWork work(dense_model(), 2, 4);
  Outcome four = answer(0, 1, 2, 3, 8);
  four.choices = 4;
  // Two tokens each: one of them is fed back, and sees itself and the 3 of the prompt.
  EXPECT_EQ(work.operations({{four}}, 3), 2 * (3 + 4) * 3000 + 2 * 8 * 1000 + (6 + 4 * 4) * 160);
  EXPECT_EQ(work.bytes({{four}}, {}), 4 * 3 * 40 * 4);
}

TEST(ModelWork, counts_the_experts_that_the_tokens_of_each_step_meet) {
  ModelConfig model = dense_model();
  model.moe = MoeConfig{.experts = 8, .top_k = 2, .intermediate_size = 10, .dense_layers = {0}};
  const ModelWork work(model, 2, 4);
  const double attention_and_dense = 2 * 600 + 900;
  EXPECT_EQ(work.parameters_per_token(), attention_and_dense + 10 * 8 + 2 * 300);
  const double one_token = work.bytes({}, tally(1, 1, 1));
  EXPECT_NEAR(one_token, 2 * (attention_and_dense + 80 + 1000 + 8 * 300 * 0.25), 1e-6);
  const double many_tokens = work.bytes({}, tally(1, 1000, 1));
  EXPECT_NEAR(many_tokens, 2 * (attention_and_dense + 80 + 1000 + 8 * 300), 1e-6);
  const StepTally both{.by_tokens = {{1, 1}, {1000, 1}}, .sampling = 2};
  EXPECT_NEAR(work.bytes({}, both), one_token + many_tokens, 1e-6)
      << "a step of one token meets few, whatever the steps around it";
}

TEST(Ceilings, are_what_a_machine_can_do) {
  const Ceilings ceilings = measure_ceilings(1, 0.01);
  EXPECT_GT(ceilings.operations_per_second, 1e8);
  EXPECT_LT(ceilings.operations_per_second, 1e13);
  EXPECT_GT(ceilings.bytes_per_second, 1e7);
  EXPECT_LT(ceilings.bytes_per_second, 1e13);
}

TEST(RateOf, adds_up_what_each_thread_does_without_its_first_round) {
  std::vector<std::vector<std::thread::id>> callers(3);
  const double rate = rate_of(3, 0.01, [&](int thread) {
    auto& own = callers[static_cast<std::size_t>(thread)];
    own.push_back(std::this_thread::get_id());
    return own.size() == 1 ? 1e30 : 0.0;
  });
  EXPECT_EQ(rate, 0) << "the first rounds count";
  std::set<std::thread::id> threads;
  for (const auto& own : callers) {
    ASSERT_GE(own.size(), 2U);
    EXPECT_EQ(std::set(own.begin(), own.end()).size(), 1U);
    threads.insert(own.front());
  }
  EXPECT_EQ(threads.size(), 3U);
}

SweepFigures two_loads() {
  SweepFigures figures{.options = {.by_rate = true, .loads = {2, inf}, .ttft_ms = 150},
                       .runs = 2,
                       .ceilings = {1e9, 1e8},
                       .ceiling_threads = 2,
                       .points = {}};
  const ModelWork work(dense_model(), 2, 4);
  const SweepRun slow{{answer(0, 0.1, 0.5, 3, 5), answer(1, 1.2, 2, 3, 5)}, 2, tally(10, 2, 10), 6};
  const SweepRun fast{{answer(0, 0.1, 0.5, 3, 5), answer(0, 0.1, 1, 3, 5)}, 1, tally(10, 2, 10), 6};
  Outcome failed = answer(0, 0, 1, 0, 0);
  failed.error = "too long";
  const std::vector<SweepRun> first = {slow, fast};
  const std::vector<SweepRun> second = {
      {{failed, answer(0, 0.2, 1, 3, 1)}, 1, tally(10, 2, 10), 3}};
  figures.points = {sweep_point(2, first, figures.options, work, figures.ceilings),
                    sweep_point(inf, second, figures.options, work, figures.ceilings)};
  return figures;
}

TEST(SweepPoint, gathers_all_runs_of_a_load) {
  const SweepFigures figures = two_loads();
  const SweepPoint& point = figures.points[0];
  EXPECT_EQ(point.runs, 2);
  EXPECT_EQ(point.answered, 4);
  EXPECT_EQ(point.failed, 0);
  EXPECT_DOUBLE_EQ(point.seconds, 3);
  EXPECT_DOUBLE_EQ(point.requests_per_second, 4.0 / 3);
  EXPECT_DOUBLE_EQ(point.output_tokens_per_second, 20.0 / 3);
  EXPECT_DOUBLE_EQ(point.min_output_tokens_per_second, 5);
  EXPECT_DOUBLE_EQ(point.max_output_tokens_per_second, 10);
  EXPECT_DOUBLE_EQ(point.all_tokens_per_second, 32.0 / 3);
  EXPECT_DOUBLE_EQ(point.good_share, 0.75) << "one of four had its first token after 200 ms";
  EXPECT_DOUBLE_EQ(point.good_requests_per_second, 1);
  EXPECT_NEAR(point.first_token_ms.p50, 100, 1e-9);
  EXPECT_NEAR(point.first_token_ms.p99, 197, 1e-9);
  EXPECT_NEAR(point.per_token_ms.mean, (100 + 200 + 100 + 225) / 4.0, 1e-9);
  const ModelWork work(dense_model(), 2, 4);
  const std::vector<Outcome> one = {answer(0, 0, 0, 3, 5)};
  EXPECT_NEAR(point.operations_share, 4 * work.operations(one, 3) / 3 / 1e9, 1e-12);
  EXPECT_GT(point.bytes_share, 0);
  const SweepPoint& overloaded = figures.points[1];
  EXPECT_EQ(overloaded.failed, 1);
  EXPECT_EQ(overloaded.good_share, 0);
  EXPECT_EQ(overloaded.per_token_ms.p50, 0) << "an answer of one token has nothing between tokens";
}

TEST(SweepPoint, leaves_answers_of_several_choices_out_of_the_time_between_tokens) {
  const ModelWork work(dense_model(), 2, 4);
  Outcome several = answer(0, 0.1, 1.1, 3, 41);  // 25 ms each, if they belonged to one choice
  several.choices = 4;
  const std::vector<SweepRun> runs = {
      {{several, answer(0, 0.1, 0.5, 3, 5)}, 2, tally(10, 2, 10), 6}};
  const SweepPoint strict = sweep_point(2, runs, {.tpot_ms = 50}, work, {});
  EXPECT_NEAR(strict.per_token_ms.mean, 100, 1e-9);
  EXPECT_EQ(strict.good_share, 0);
  const SweepPoint lax = sweep_point(2, runs, {.tpot_ms = 150}, work, {});
  EXPECT_EQ(lax.good_share, 1);
  EXPECT_DOUBLE_EQ(lax.good_requests_per_second, 0.5);
  const SweepPoint whole = sweep_point(2, runs, {.e2e_ms = 1000}, work, {});
  EXPECT_EQ(whole.good_share, 0.5);
}

TEST(SweepReport, fits_79_columns_and_names_every_load) {
  SweepFigures figures = two_loads();
  for (SweepPoint& point : figures.points) {
    for (Distribution* of : {&point.first_token_ms, &point.per_token_ms, &point.whole_ms}) {
      *of = {123456, 123456, 123456, 123456};
    }
    point.output_tokens_per_second = point.max_output_tokens_per_second = 123456;
    point.requests_per_second = point.good_requests_per_second = 12345;
  }
  const std::string table = to_table(figures);
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 79U) << line;
  EXPECT_THAT(table, HasSubstr("\n2/s "));
  EXPECT_THAT(table, HasSubstr("\ninf "));
  EXPECT_THAT(table, HasSubstr("good req/s"));
  EXPECT_THAT(table, HasSubstr("1 requests failed"));
  figures.options.ttft_ms.reset();
  EXPECT_THAT(to_table(figures), Not(HasSubstr("good")));
}

TEST(SweepReport, tells_programs_everything) {
  const auto json = to_json(two_loads());
  EXPECT_EQ(json.at("loads_are"), "requests_per_second");
  EXPECT_EQ(json.at("limits").at("ttft_ms"), 150.0);
  EXPECT_TRUE(json.at("limits").at("tpot_ms").is_null());
  ASSERT_EQ(json.at("points").size(), 2U);
  EXPECT_EQ(json.at("points")[0].at("load"), 2.0);
  EXPECT_EQ(json.at("points")[0].at("good_share"), 0.75);
  EXPECT_EQ(json.at("points")[1].at("load"), "inf");
  EXPECT_EQ(json.at("points")[1].at("failed"), 1);
}

TEST(SweepReport, tells_no_shares_of_ceilings_that_nobody_measured) {
  SweepFigures figures = two_loads();
  figures.ceilings = {};
  EXPECT_THAT(to_table(figures), Not(HasSubstr("ceilings")));
  EXPECT_THAT(to_table(figures), Not(HasSubstr("0.0%")));
  EXPECT_TRUE(to_json(figures).at("points")[0].at("mfu").is_null());
}

TEST(SweepPage, carries_its_figures_as_data_and_needs_nothing_from_elsewhere) {
  const std::string page = sweep_page(two_loads(), "model <m></script>\n");
  const std::string begin = "id=\"report\">";
  const auto from = page.find(begin) + begin.size();
  const auto data = nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
  EXPECT_EQ(data.at("points").size(), 2U);
  EXPECT_EQ(data.at("heading"), "model <m></script>\n");
  EXPECT_EQ(data.at("table"), to_table(two_loads()));
  EXPECT_THAT(page, Not(HasSubstr("<m>")));
  for (const char* other : {"https:", " src=", "href=", "url(", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(other)));
  }
}

}  // namespace
}  // namespace troupe
