#include <gtest/gtest.h>
#include <sys/prctl.h>

#include "tests/process/runtime/actor/secret_seeker.hpp"
#include "tests/process/runtime/actor/test_actors.hpp"

namespace troupe::test {

TEST(Secrets, the_driver_hides_its_memory_and_an_actor_has_nothing_to_hide) {
  auto cluster = start_cluster();
  EXPECT_EQ(::prctl(PR_GET_DUMPABLE), 0);
  auto seeker = must(cluster->spawn<SecretSeeker>({}).get(limit));
  EXPECT_EQ(must(seeker.call<&SecretSeeker::dumpable>().get(limit)), 1);
}

TEST(Secrets, the_members_of_a_channel_have_its_key_and_no_other) {
  auto cluster = start_cluster({.nodes = {{"left", 2, {}}, {"right", 2, {}}}});
  auto left = must(cluster->spawn<SecretSeeker>({.name = "a", .node = "left"}).get(limit));
  auto right = must(cluster->spawn<SecretSeeker>({.name = "b", .node = "right"}).get(limit));
  auto here = must(cluster->spawn_local<SecretSeeker>({.name = "c"}).get(limit));
  using Members = std::vector<std::string>;
  const auto key_of = [](ActorHandle<SecretSeeker>& seeker, const std::string& purpose,
                         const Members& members) {
    return must(seeker.call<&SecretSeeker::key>(purpose, members).get(limit));
  };
  const Members all{"a", "b", "c"};
  EXPECT_EQ(key_of(left, "steps", all), key_of(right, "steps", all));
  EXPECT_EQ(key_of(left, "steps", all), key_of(here, "steps", {"c", "b", "a"}));
  EXPECT_NE(key_of(left, "steps", all), key_of(left, "results", all));
  EXPECT_NE(key_of(left, "steps", all), key_of(left, "steps", {"a", "b"}));
  EXPECT_FALSE(left.call<&SecretSeeker::key>(std::string(), all).get(limit).ok());
}

TEST(Secrets, an_actor_does_not_get_the_key_of_a_channel_of_two_others) {
  auto cluster = start_cluster();
  auto remote = must(cluster->spawn<SecretSeeker>({.name = "a"}).get(limit));
  auto local = must(cluster->spawn_local<SecretSeeker>({.name = "d"}).get(limit));
  for (auto* seeker : {&remote, &local}) {
    const auto key =
        seeker->call<&SecretSeeker::key>(std::string("steps"), std::vector<std::string>{"b", "c"})
            .get(limit);
    ASSERT_FALSE(key.ok());
    EXPECT_EQ(key.error().code, ErrorCode::permission_denied) << key.error().message;
  }
}

}  // namespace troupe::test
