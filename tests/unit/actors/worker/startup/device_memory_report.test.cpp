#include "actors/worker/startup/device_memory_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

Error no_memory() { return fail(ErrorCode::resource_exhausted, "device 0: no memory"); }

TEST(DeviceMemoryReport, counts_what_is_neither_weights_nor_taken_before_as_buffers) {
  const DeviceMemoryReport use =
      device_memory_report({.free_bytes = 90 * gib, .total_bytes = 100 * gib},
                           {.free_bytes = 60 * gib, .total_bytes = 100 * gib}, 25 * gib, gib);
  EXPECT_EQ(use.elsewhere, 10 * gib);
  EXPECT_EQ(use.buffers, 5 * gib);
  EXPECT_EQ(use.free, 60 * gib);
  EXPECT_EQ(describe(use),
            "100.0 GiB: 10.0 GiB CUDA's own and other processes', 25.0 GiB weights, 5.0 GiB "
            "buffers of passes, 1.0 GiB for logits, sampling and recorded passes; 60.0 GiB free");
}

TEST(DeviceMemoryReport, is_not_below_zero_where_others_free_memory_meanwhile) {
  const DeviceMemoryReport use =
      device_memory_report({.free_bytes = 50 * gib, .total_bytes = 100 * gib},
                           {.free_bytes = 60 * gib, .total_bytes = 100 * gib}, 25 * gib, 0);
  EXPECT_EQ(use.buffers, 0U);
}

TEST(DeviceMemoryReport, is_told_by_a_load_without_memory) {
  const Error error = with_memory_of_load(
      no_memory(), {.free_bytes = 20 * gib, .total_bytes = 100 * gib}, 25 * gib, 16384);
  EXPECT_EQ(error.code, ErrorCode::resource_exhausted);
  for (const char* part :
       {"device 0: no memory. Of the device's 100.0 GiB, 80.0 GiB were taken before",
        "weights are 25.0 GiB", "parallel.tensor_parallel_size",
        "engine.max_num_batched_tokens (16384)"}) {
    EXPECT_THAT(error.message, HasSubstr(part));
  }
}

TEST(DeviceMemoryReport, is_told_by_a_start_without_memory) {
  const Error error = with_memory_of_start(
      no_memory(), {.free_bytes = 20 * gib, .total_bytes = 100 * gib}, 25 * gib, 30 * gib);
  for (const char* part : {"20.0 GiB are free", "weights are 25.0 GiB", "KV cache is 30.0 GiB",
                           "engine.gpu_memory_utilization", "engine.kv_cache_blocks"}) {
    EXPECT_THAT(error.message, HasSubstr(part));
  }
}

TEST(DeviceMemoryReport, is_no_part_of_other_errors) {
  const Error other = fail(ErrorCode::io, "cannot read");
  EXPECT_EQ(with_memory_of_load(other, {.free_bytes = 1, .total_bytes = 2}, 1, 1).message,
            "cannot read");
  EXPECT_EQ(with_memory_of_start(no_memory(), {}, 1, 1).message, "device 0: no memory");
}

}  // namespace
}  // namespace troupe
