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

TEST(Secrets, actors_that_agree_on_a_purpose_have_the_same_key_and_no_other) {
  auto cluster = start_cluster({.nodes = {{"left", 2, {}}, {"right", 2, {}}}});
  auto left = must(cluster->spawn<SecretSeeker>({.node = "left"}).get(limit));
  auto right = must(cluster->spawn<SecretSeeker>({.node = "right"}).get(limit));
  auto here = must(cluster->spawn_local<SecretSeeker>({}).get(limit));
  const auto key_of = [](ActorHandle<SecretSeeker>& seeker, const std::string& purpose) {
    return must(seeker.call<&SecretSeeker::key>(purpose).get(limit));
  };
  EXPECT_EQ(key_of(left, "steps"), key_of(right, "steps"));
  EXPECT_EQ(key_of(left, "steps"), key_of(here, "steps"));
  EXPECT_NE(key_of(left, "steps"), key_of(left, "results"));
  EXPECT_FALSE(left.call<&SecretSeeker::key>(std::string()).get(limit).ok());
}

}  // namespace troupe::test
