#include "actors/driver/kv_budget.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

constexpr std::uint64_t plenty = std::uint64_t{1} << 40;

TEST(KvBudget, is_what_was_asked_for_whatever_memory_there_is) {
  EXPECT_EQ(choose_kv_cache_blocks({.model_path = {}, .kv_cache_blocks = 7}, 1 << 20, 1), 7);
}

TEST(KvBudget, is_what_all_running_requests_can_use) {
  const EngineSpec spec{
      .model_path = {}, .max_model_len = 100, .max_num_seqs = 3, .block_size = 16};
  EXPECT_EQ(choose_kv_cache_blocks(spec, 1024, plenty), 3 * 7);
}

TEST(KvBudget, stays_within_half_of_the_free_memory) {
  const EngineSpec spec{
      .model_path = {}, .max_model_len = 1000, .max_num_seqs = 100, .block_size = 16};
  EXPECT_EQ(choose_kv_cache_blocks(spec, 1024, 20 * 1024), 10);
  EXPECT_EQ(choose_kv_cache_blocks(spec, 1024, 1024), 0);
  EXPECT_EQ(choose_kv_cache_blocks(spec, 1024, 0), 0);
}

TEST(KvBudget, is_what_requests_can_use_where_free_memory_is_not_known) {
  const EngineSpec spec{
      .model_path = {}, .max_model_len = 100, .max_num_seqs = 3, .block_size = 16};
  EXPECT_EQ(choose_kv_cache_blocks(spec, 1024, std::nullopt), 3 * 7);
}

WorkerReport worker_with(DeviceMemoryReport device, std::uint64_t bytes_per_block) {
  return {.weight_bytes = 0, .kv_bytes_per_block = bytes_per_block, .device = device};
}

TEST(HostKvBudget, is_what_the_node_with_the_least_room_holds) {
  const EngineSpec spec{
      .model_path = {}, .max_model_len = 1000, .max_num_seqs = 100, .block_size = 16};
  const auto worker = [](std::uint64_t bytes, std::optional<std::uint64_t> free) {
    WorkerReport report;
    report.kv_bytes_per_block = bytes;
    report.free_host_bytes = free;
    return report;
  };
  // Two workers share a's memory: 12,000 / 2 / (100 + 200); b has 9,000 / 2 / 300.
  const std::vector workers{worker(100, 14'000), worker(200, 12'000), worker(300, 9'000)};
  const std::vector<std::string> nodes{"a", "a", "b"};
  EXPECT_EQ(choose_host_kv_cache_blocks(spec, workers, nodes), 15);
  EXPECT_EQ(choose_host_kv_cache_blocks(spec, std::span(workers).first(2), nodes), 20);
}

TEST(DeviceKvBudget, is_what_is_left_of_the_fullest_device) {
  const EngineSpec spec{.model_path = {},
                        .device_memory_utilization = 0.9,
                        .max_model_len = 100'000,
                        .max_num_seqs = 100,
                        .block_size = 16};
  // 1000 of 10,000 stay free; one block is kept for captured passes.
  const std::vector<WorkerReport> workers{worker_with({.total = 10'000, .free = 9'000}, 100),
                                          worker_with({.total = 10'000, .free = 4'000}, 100),
                                          worker_with({.total = 10'000, .free = 9'000}, 200)};
  EXPECT_EQ(choose_device_kv_cache_blocks(spec, workers), 29);
  EXPECT_EQ(choose_device_kv_cache_blocks(spec, std::span(workers).first(1)), 79);
  EXPECT_EQ(choose_device_kv_cache_blocks(spec, std::span(workers).last(1)), 39);
}

TEST(DeviceKvBudget, leaves_room_for_what_workers_take_later) {
  const EngineSpec spec{.model_path = {},
                        .device_memory_utilization = 1.0,
                        .max_model_len = 100'000,
                        .max_num_seqs = 100,
                        .block_size = 16};
  const std::vector workers{worker_with({.total = 10'000, .free = 9'000, .later = 4'000}, 100)};
  EXPECT_EQ(choose_device_kv_cache_blocks(spec, workers), 49);
}

TEST(DeviceKvBudget, is_what_was_asked_for_or_what_all_running_requests_can_use) {
  const std::vector workers{worker_with({.total = plenty, .free = plenty}, 100)};
  EXPECT_EQ(choose_device_kv_cache_blocks({.model_path = {}, .kv_cache_blocks = 7}, workers), 7);
  const EngineSpec spec{
      .model_path = {}, .max_model_len = 100, .max_num_seqs = 3, .block_size = 16};
  EXPECT_EQ(choose_device_kv_cache_blocks(spec, workers), 3 * 7);
}

TEST(DeviceKvBudget, says_what_has_the_memory_where_there_is_no_room_for_a_block) {
  const std::uint64_t gib = std::uint64_t{1} << 30;
  const EngineSpec spec{.model_path = {}, .device_memory_utilization = 0.9, .block_size = 16};
  const std::vector workers{worker_with({.total = 100 * gib, .free = 50 * gib}, 1024),
                            worker_with({.total = 100 * gib,
                                         .free = 8 * gib,
                                         .elsewhere = 70 * gib,
                                         .weights = 20 * gib,
                                         .buffers = 2 * gib,
                                         .later = gib},
                                        1024)};
  EXPECT_EQ(choose_device_kv_cache_blocks(spec, workers), 0);
  const Error error = no_room_for_blocks(spec, workers);
  EXPECT_EQ(error.code, ErrorCode::resource_exhausted);
  for (const char* part : {"70.0 GiB CUDA's own and other processes'", "20.0 GiB weights",
                           "2.0 GiB buffers", "8.0 GiB free", "engine.gpu_memory_utilization",
                           "engine.max_num_batched_tokens", "parallel.tensor_parallel_size"}) {
    EXPECT_THAT(error.message, testing::HasSubstr(part));
  }
}

/// A worker on a node that has this much host memory left.
WorkerReport worker_on_host_with(std::optional<std::uint64_t> free_bytes,
                                 std::uint64_t kv_bytes_per_block) {
  WorkerReport worker = worker_with({}, kv_bytes_per_block);
  worker.free_host_bytes = free_bytes;
  return worker;
}

const std::vector<std::string> same_node{"n1", "n1"};

TEST(SwapBudget, is_what_was_asked_for_of_the_worker_with_the_largest_blocks) {
  const std::vector workers{worker_on_host_with(plenty, 100), worker_on_host_with(plenty, 300)};
  EngineSpec spec{.model_path = {}, .swap_bytes = 1000};
  EXPECT_EQ(choose_swap_blocks(spec, workers, same_node, 10), 3);
  spec.device = DeviceKind::cuda;
  EXPECT_EQ(choose_swap_blocks(spec, workers, same_node, 10), 3);
  spec.swap_bytes = 0;
  EXPECT_EQ(choose_swap_blocks(spec, workers, same_node, 10), 0);
}

TEST(SwapBudget, is_what_the_cache_of_devices_lacks_within_a_quarter_of_the_free_memory) {
  const auto workers_with = [](std::optional<std::uint64_t> free) {
    return std::vector{worker_on_host_with(free, 100), worker_on_host_with(free, 300)};
  };
  const EngineSpec spec{.model_path = {},
                        .device = DeviceKind::cuda,
                        .max_model_len = 100,
                        .max_num_seqs = 3,
                        .block_size = 16};
  EXPECT_EQ(choose_swap_blocks(spec, workers_with(plenty), same_node, 15), 3 * 7 - 15);
  EXPECT_EQ(choose_swap_blocks(spec, workers_with(plenty), same_node, 21), 0);
  EXPECT_EQ(choose_swap_blocks(spec, workers_with(plenty), same_node, 30), 0);
  EXPECT_EQ(choose_swap_blocks(spec, workers_with(16'000), same_node, 1), 10);
  EXPECT_EQ(choose_swap_blocks(spec, workers_with(std::nullopt), same_node, 1), 0);
}

TEST(SwapBudget, fits_the_memory_of_the_node_that_has_least_for_its_workers) {
  const EngineSpec spec{.model_path = {},
                        .device = DeviceKind::cuda,
                        .max_model_len = 100,
                        .max_num_seqs = 3,
                        .block_size = 16};
  const std::vector workers{worker_on_host_with(8'000, 100), worker_on_host_with(8'000, 100),
                            worker_on_host_with(6'000, 100)};
  EXPECT_EQ(choose_swap_blocks(spec, workers, std::vector<std::string>{"n1", "n1", "n2"}, 1), 10);
  EXPECT_EQ(choose_swap_blocks(spec, workers, std::vector<std::string>{"n1", "n2", "n2"}, 1), 7);
}

TEST(SwapBudget, is_nothing_on_cpus_and_beside_a_draft_model) {
  const std::vector workers{worker_on_host_with(plenty, 100)};
  const std::vector<std::string> node{"n1"};
  EngineSpec spec{.model_path = {}, .max_model_len = 100'000};
  EXPECT_EQ(choose_swap_blocks(spec, workers, node, 1), 0);
  spec.device = DeviceKind::cuda;
  EXPECT_GT(choose_swap_blocks(spec, workers, node, 1), 0);
  spec.speculation.method = SpeculationConfig::Method::draft_model;
  spec.swap_bytes = 1000;
  EXPECT_EQ(choose_swap_blocks(spec, workers, node, 1), 0);
}

}  // namespace
}  // namespace troupe
