#include "actors/telemetry/step_record.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

StepRecord step(std::int64_t number) {
  StepRecord record;
  record.planned_us = number * 10;
  record.answered_us = number * 10 + 15;
  record.step_us = 15;
  record.model_us = 9;
  record.output_tokens = 2;
  record.running = 3;
  record.kv_use = 0.25;
  record.max_kv_use = number == 700 ? 0.9 : 0.25;
  return record;
}

TEST(StepBatch, loses_detail_but_no_sum_when_it_is_full) {
  StepBatch batch;
  constexpr std::int64_t count = 1000;
  for (std::int64_t i = 0; i < count; ++i) batch.add(step(i));
  const auto records = batch.take();
  EXPECT_LE(records.size(), StepBatch::max_records);
  EXPECT_GE(records.size(), StepBatch::max_records / 4);
  StepRecord sum = records.front();
  for (std::size_t i = 1; i < records.size(); ++i) {
    EXPECT_LT(records[i - 1].planned_us, records[i].planned_us);
    EXPECT_LT(records[i - 1].answered_us, records[i].answered_us);
    sum.add(records[i]);
  }
  EXPECT_EQ(sum.steps, 1000U);
  EXPECT_EQ(sum.step_us, 15'000U);
  EXPECT_EQ(sum.model_us, 9'000U);
  EXPECT_EQ(sum.output_tokens, 2'000U);
  EXPECT_EQ(sum.running, 3'000U);
  EXPECT_DOUBLE_EQ(sum.kv_use, 250);
  EXPECT_DOUBLE_EQ(sum.max_kv_use, 0.9);
  EXPECT_EQ(sum.planned_us, 0);
  EXPECT_EQ(sum.answered_us, 999 * 10 + 15);
}

TEST(StepBatch, is_empty_once_it_was_taken) {
  StepBatch batch;
  batch.add(step(1));
  EXPECT_EQ(batch.take().size(), 1U);
  EXPECT_TRUE(batch.take().empty());
}

}  // namespace
}  // namespace troupe
