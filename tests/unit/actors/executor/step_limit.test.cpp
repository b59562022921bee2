#include "actors/executor/step_limit.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

TEST(StepLimit, is_none_before_a_step_was_measured) {
  StepLimit limit;
  EXPECT_FALSE(limit.limit(100).has_value());
  limit.note(100, 50ms);
  EXPECT_TRUE(limit.limit(100).has_value());
  limit.restart();
  EXPECT_FALSE(limit.limit(100).has_value()) << "new workers warm up";
}

TEST(StepLimit, is_generous_for_short_steps) {
  StepLimit limit;
  limit.note(1, 5ms);
  EXPECT_EQ(limit.limit(1), StepLimit::least_on_cpus);
  StepLimit on_gpus(StepLimit::least_on_gpus);
  on_gpus.note(1, std::chrono::milliseconds(1));
  EXPECT_EQ(on_gpus.limit(1), StepLimit::least_on_gpus);
}

TEST(StepLimit, grows_with_the_time_of_the_longest_step_of_its_size) {
  StepLimit limit;
  limit.note(64, 1s);
  limit.note(64, 2s);
  limit.note(64, 1s);
  EXPECT_EQ(limit.limit(64), 40s);
}

TEST(StepLimit, grows_with_the_work_beyond_what_was_measured) {
  StepLimit limit;
  limit.note(64, 2s);
  EXPECT_EQ(limit.limit(640), 400s);
  EXPECT_EQ(limit.limit(1), 40s) << "a step of less work may take as long";
  limit.note(1024, 3s);
  EXPECT_EQ(limit.limit(640), 60s) << "a larger step says more than ten small ones";
}

TEST(StepLimit, counts_tokens_and_the_positions_that_they_attend_to) {
  StepPlan plan;
  EXPECT_EQ(StepLimit::work_of(plan), 1U);
  plan.steps.push_back({.id = 1, .first_position = 0, .tokens = 100});
  EXPECT_EQ(StepLimit::work_of(plan), 1U + 100 + 9);
  plan.steps.push_back({.id = 2, .first_position = 102'400 - 1, .tokens = 1});
  EXPECT_EQ(StepLimit::work_of(plan), 1U + 100 + 9 + 1 + 100);
}

}  // namespace
}  // namespace troupe
