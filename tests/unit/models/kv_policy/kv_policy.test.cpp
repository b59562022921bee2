#include "models/kv_policy/kv_policy.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace troupe {
namespace {

constexpr KvPolicy streaming{
    .kind = KvPolicy::Kind::streaming, .capacity = 12, .first_tokens = 4, .drop_tokens = 3};
constexpr KvPolicy snapkv{
    .kind = KvPolicy::Kind::snapkv, .capacity = 12, .last_tokens = 4, .pooling_tokens = 3};
constexpr KvPolicy h2o{
    .kind = KvPolicy::Kind::h2o, .capacity = 12, .last_tokens = 4, .drop_tokens = 3};

/// Plays a sequence token by token: drops happen when the cache is full, and the closed forms must
/// say the same.
void expect_played(const KvPolicy& policy, std::int32_t prompt) {
  std::int32_t entries = 0, dropped = 0, next_drop = policy.next_drop(0, prompt);
  std::int64_t most = 0;
  for (std::int32_t position = 0; position < 100; ++position) {
    const bool is_streaming = policy.kind == KvPolicy::Kind::streaming;
    std::int32_t drop = 0;
    if (policy.kind == KvPolicy::Kind::snapkv) {
      if (position == prompt) drop = std::max(entries - policy.capacity, 0);
    } else if ((is_streaming || position >= prompt) && entries >= policy.capacity) {
      drop = entries - policy.capacity + policy.drop_tokens;
    }
    if (drop > 0) {
      EXPECT_EQ(next_drop, position) << "prompt " << prompt;
      next_drop = policy.next_drop(position, prompt);
    }
    entries -= drop;
    dropped += drop;
    EXPECT_EQ(policy.dropped_before(position, prompt), dropped)
        << to_string(policy.kind) << ", position " << position << ", prompt " << prompt;
    ++entries;
    most = std::max<std::int64_t>(most, entries);
    EXPECT_EQ(policy.most_entries(position + 1, prompt), most)
        << to_string(policy.kind) << ", position " << position << ", prompt " << prompt;
    EXPECT_GT(policy.next_drop(position, prompt), position);
  }
}

TEST(KvPolicy, drops_whenever_the_cache_is_full) {
  for (const std::int32_t prompt : {1, 5, 11, 12, 13, 30}) {
    expect_played(streaming, prompt);
    expect_played(snapkv, prompt);
    expect_played(h2o, prompt);
  }
}

TEST(KvPolicy, keeps_everything_by_default) {
  const KvPolicy full;
  EXPECT_EQ(full.dropped_before(1 << 30, 7), 0);
  EXPECT_GT(full.next_drop(1 << 30, 7), 1 << 30);
  EXPECT_EQ(full.most_entries(1000, 7), 1000);
  EXPECT_FALSE(full.observes(0, 7));
}

TEST(KvPolicy, observes_the_end_of_a_prompt_that_snapkv_cuts) {
  EXPECT_FALSE(snapkv.observes(15, 20));
  EXPECT_TRUE(snapkv.observes(16, 20));
  EXPECT_TRUE(snapkv.observes(19, 20));
  EXPECT_FALSE(snapkv.observes(20, 20));
  EXPECT_FALSE(snapkv.observes(11, 12)) << "a prompt that stays whole";
  EXPECT_TRUE(h2o.observes(0, 20));
  EXPECT_TRUE(h2o.observes(99, 20));
}

}  // namespace
}  // namespace troupe
