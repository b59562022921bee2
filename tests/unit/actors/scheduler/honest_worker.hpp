#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "actors/scheduler/scheduler.hpp"

// Scheduler calls for tests, each checked and followed by an audit of the scheduler.

namespace troupe {

inline Scheduler make(const SchedulerConfig& config) {
  auto made = Scheduler::make(config);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(made).value();
}

inline SequenceGroupSpec spec_of(std::uint64_t request, std::int32_t prompt,
                                 std::int32_t max_tokens) {
  SequenceGroupSpec spec;
  spec.request = request;
  spec.prompt.resize(static_cast<std::size_t>(prompt));
  std::iota(spec.prompt.begin(), spec.prompt.end(), 100);
  spec.sampling.max_tokens = max_tokens;
  return spec;
}

inline void add(Scheduler& scheduler, const SequenceGroupSpec& spec) {
  const auto added = scheduler.add(spec);
  ASSERT_TRUE(added.ok()) << added.error().message;
}

/// A correct worker: one token for each sampled sequence.
inline StepResult answer(const StepPlan& plan, std::int32_t token = 1) {
  StepResult result;
  result.step = plan.step;
  result.epoch = plan.epoch;
  for (const SequenceStep& step : plan.steps) {
    if (step.sample) result.results.push_back({step.id, {token}, {}, 0, {}, false});
  }
  return result;
}

inline std::vector<SequenceUpdate> apply(Scheduler& scheduler, StepResult result) {
  auto applied = scheduler.apply(std::move(result));
  EXPECT_TRUE(applied.ok()) << applied.error().message;
  const auto audit = scheduler.audit();
  EXPECT_TRUE(audit.ok()) << audit.error().message;
  return applied.ok() ? std::move(applied).value() : std::vector<SequenceUpdate>{};
}

inline StepPlan plan(Scheduler& scheduler) {
  auto planned = scheduler.plan();
  EXPECT_TRUE(planned.has_value()) << "nothing was planned";
  const auto audit = scheduler.audit();
  EXPECT_TRUE(audit.ok()) << audit.error().message;
  return planned.value_or(StepPlan{});
}

}  // namespace troupe
