#include "actors/driver/kv_budget.hpp"

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

TEST(KvBudget, can_tell_the_memory_of_this_machine) {
  EXPECT_GT(available_memory_bytes().value_or(0), 0U);
}

}  // namespace
}  // namespace troupe
