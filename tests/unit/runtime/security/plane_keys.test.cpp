#include "runtime/security/plane_keys.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(PlaneKeys, no_scope_of_a_channel_gives_the_key_of_another_plane_or_scope) {
  const auto keys = *JobKeys::generate();
  std::vector<Key> seen;
  const std::vector<std::string> purposes{"call plane", "link/10:driver/job/11:agent/node0",
                                          "a/1:b", "a"};
  const std::vector<std::vector<std::string>> groups{{"b"}, {"b", "b"}, {"b", "c"}, {"b", "1:c"}};
  for (const auto& purpose : purposes) {
    for (const auto& members : groups) {
      const auto key = channel_key(keys, "b", {purpose, members});
      ASSERT_TRUE(key.ok());
      EXPECT_NE(*key, keys.derive(purpose));
      EXPECT_EQ(std::ranges::count(seen, *key), 0) << purpose;
      seen.push_back(*key);
    }
  }
  EXPECT_EQ(*channel_key(keys, "a", {"steps", {"a", "b"}}),
            *channel_key(keys, "b", {"steps", {"b", "a"}}));
}

TEST(PlaneKeys, only_members_of_a_scope_get_its_key) {
  const auto keys = *JobKeys::generate();
  for (const std::string asker : {"", "c", "a/1:b"}) {
    const auto key = channel_key(keys, asker, {"steps", {"a", "b"}});
    ASSERT_FALSE(key.ok()) << asker;
    EXPECT_EQ(key.error().code, ErrorCode::permission_denied);
  }
  EXPECT_FALSE(channel_key(keys, "a", {"steps", {}}).ok());
}

TEST(PlaneKeys, a_purpose_has_a_length) {
  const auto keys = *JobKeys::generate();
  EXPECT_FALSE(channel_key(keys, "a", {"", {"a"}}).ok());
  EXPECT_FALSE(channel_key(keys, "a", {std::string(257, 'x'), {"a"}}).ok());
  EXPECT_TRUE(channel_key(keys, "a", {std::string(256, 'x'), {"a"}}).ok());
}

TEST(PlaneKeys, a_pair_of_processes_has_one_key_on_the_call_plane_which_no_other_has) {
  const auto keys = *JobKeys::generate();
  const auto a = call_keys(keys, "a"), b = call_keys(keys, "b");
  const auto key_of = [](const CallKeys& connector, const std::string& listener) {
    Key key{};
    connector.ask(listener, [&](const Result<Key>& answer) { key = *answer; });
    return key;
  };
  EXPECT_EQ(key_of(a, "b"), call_pair_key(b.listener.bytes, "a"));
  EXPECT_NE(key_of(a, "b"), key_of(b, "a"));
  EXPECT_NE(key_of(a, "b"), key_of(a, "c"));
  EXPECT_NE(a.listener.bytes, b.listener.bytes);
}

TEST(PlaneKeys, a_name_on_the_call_plane_cannot_be_guessed) {
  const std::string first = *draw_call_name("job");
  EXPECT_TRUE(first.starts_with("troupe-job-"));
  EXPECT_EQ(first.size(), std::string("troupe-job-").size() + 32);
  EXPECT_NE(first, *draw_call_name("job"));
}

TEST(SecretKey, can_be_wiped) {
  Key bytes{};
  bytes.fill(std::byte{7});
  wipe(bytes);
  EXPECT_EQ(bytes, Key{});
}

}  // namespace
}  // namespace troupe
