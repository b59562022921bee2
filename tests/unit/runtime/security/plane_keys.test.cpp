#include "runtime/security/plane_keys.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(PlaneKeys, no_purpose_of_a_channel_gives_the_key_of_another_plane) {
  const auto keys = *JobKeys::generate();
  for (const std::string purpose :
       {"call plane", "link/10:driver/job/11:agent/node0", "channel/x", "x"}) {
    const auto key = channel_key(keys, purpose);
    ASSERT_TRUE(key.ok());
    EXPECT_NE(*key, keys.derive(purpose)) << purpose;
    EXPECT_NE(*key, call_plane_key(keys)) << purpose;
  }
  EXPECT_EQ(*channel_key(keys, "steps"), *channel_key(keys, "steps"));
  EXPECT_NE(*channel_key(keys, "steps"), *channel_key(keys, "results"));
}

TEST(PlaneKeys, a_purpose_has_a_length) {
  const auto keys = *JobKeys::generate();
  EXPECT_FALSE(channel_key(keys, "").ok());
  EXPECT_FALSE(channel_key(keys, std::string(257, 'x')).ok());
  EXPECT_TRUE(channel_key(keys, std::string(256, 'x')).ok());
}

TEST(SecretKey, can_be_wiped) {
  Key bytes{};
  bytes.fill(std::byte{7});
  wipe(bytes);
  EXPECT_EQ(bytes, Key{});
}

}  // namespace
}  // namespace troupe
