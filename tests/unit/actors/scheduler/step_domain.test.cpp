#include "actors/scheduler/step_domain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/actors/scheduler/honest_worker.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

StepDomain domain_of(int replicas, const SchedulerConfig& config = {}) {
  std::vector<Scheduler> schedulers;
  for (int i = 0; i < replicas; ++i) schedulers.push_back(make(config));
  return StepDomain(std::move(schedulers));
}

std::vector<StepResult> answers(const std::vector<StepPlan>& plans) {
  std::vector<StepResult> results;
  for (const StepPlan& plan : plans) results.push_back(answer(plan));
  return results;
}

TEST(StepDomain, plans_nothing_while_no_replica_has_work) {
  auto domain = domain_of(3);
  EXPECT_THAT(domain.plan(), IsEmpty());
  EXPECT_EQ(domain.in_flight(), 0U);
}

TEST(StepDomain, gives_a_replica_without_work_an_empty_plan_of_the_same_step) {
  auto domain = domain_of(2);
  add(domain.replica(1), spec_of(7, 20, 3));
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto plans = domain.plan();
    ASSERT_THAT(plans, SizeIs(2));
    EXPECT_THAT(plans[0].steps, IsEmpty());
    EXPECT_THAT(plans[1].steps, SizeIs(1));
    EXPECT_EQ(plans[0].step, step);
    EXPECT_EQ(plans[1].step, step);
    const auto applied = domain.apply(answers(plans));
    ASSERT_TRUE(applied.ok()) << applied.error().message;
    ASSERT_THAT(*applied, SizeIs(1));
    EXPECT_EQ(applied->front().request, 7U);
  }
  EXPECT_EQ(domain.live(), 0U);
  EXPECT_THAT(domain.plan(), IsEmpty());
}

TEST(StepDomain, tells_a_replica_of_released_sequences_with_an_empty_plan) {
  auto domain = domain_of(2);
  add(domain.replica(0), spec_of(1, 5, 1));
  add(domain.replica(1), spec_of(2, 5, 2));
  auto plans = domain.plan();
  const SequenceId ended = plans[0].started.at(0).id;
  ASSERT_TRUE(domain.apply(answers(plans)).ok());
  plans = domain.plan();
  EXPECT_THAT(plans[0].released, ElementsAre(ended));
  EXPECT_THAT(plans[0].steps, IsEmpty());
}

TEST(StepDomain, keeps_as_many_steps_in_flight_on_every_replica) {
  auto domain = domain_of(2, {.max_num_batched_tokens = 16, .max_steps_in_flight = 3});
  add(domain.replica(0), spec_of(1, 100, 1));
  std::vector<std::vector<StepPlan>> sent;
  for (auto plans = domain.plan(); !plans.empty(); plans = domain.plan()) sent.push_back(plans);
  ASSERT_THAT(sent, SizeIs(3));
  EXPECT_EQ(domain.replica(1).in_flight(), 3U);
  for (const auto& plans : sent) ASSERT_TRUE(domain.apply(answers(plans)).ok());
  EXPECT_EQ(domain.in_flight(), 0U);
}

TEST(StepDomain, refuses_the_results_of_another_step) {
  auto domain = domain_of(2);
  add(domain.replica(0), spec_of(1, 5, 3));
  auto results = answers(domain.plan());
  ++results[1].step;
  EXPECT_FALSE(domain.apply(std::move(results)).ok());
}

TEST(StepDomain, drops_what_waits_on_all_replicas) {
  auto domain = domain_of(2);
  add(domain.replica(0), spec_of(1, 5, 3));
  add(domain.replica(1), spec_of(2, 5, 3));
  EXPECT_EQ(domain.waiting(), 2U);
  EXPECT_THAT(domain.abort_waiting(), ElementsAre(1, 2));
  EXPECT_EQ(domain.live(), 0U);
}

}  // namespace
}  // namespace troupe
