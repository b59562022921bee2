#include <gtest/gtest.h>

#include "tests/process/runtime/actor/test_actors.hpp"

namespace troupe::test {

TEST(Cluster, spawns_an_actor_that_answers_and_whose_death_is_told) {
  auto cluster = Cluster::start({});
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  auto counter = (*cluster)->spawn<Counter>({.name = "c"}, 10).get(5s);
  ASSERT_TRUE(counter.ok()) << counter.error().message;
  auto sum = counter->call<&Counter::add>(5).get(5s);
  ASSERT_TRUE(sum.ok()) << sum.error().message;
  EXPECT_EQ(*sum, 15);
  Promise<ActorDown> promise;
  auto token = (*cluster)->watch(*counter, [&](const ActorDown& down) { promise.complete(down); });
  ASSERT_TRUE((*cluster)->kill(*counter).ok());
  auto down = promise.future().get(5s);
  ASSERT_TRUE(down.ok()) << down.error().message;
  EXPECT_EQ(down->cause, DownCause::signal) << down->message;
}

}  // namespace troupe::test
