#include "runtime/actor/actor_registry.hpp"

#include <gtest/gtest.h>

namespace troupe {

TEST(ActorRegistry, forgets_a_process_that_could_not_be_started) {
  ActorRegistry registry({{"node", 4, {0, 1}}}, Placement::pack, {});
  std::optional<Error> outcome;
  const auto admitted = registry.admit({.resources = {.devices = 2}, .process = "p"}, "A",
                                       [&](const Result<ActorAddress>& address) {
                                         if (!address.ok()) outcome = address.error();
                                       });
  ASSERT_TRUE(admitted.ok());
  EXPECT_TRUE(admitted->starts_process);
  EXPECT_EQ(registry.process_count(), 1U);
  registry.on_failed({admitted->address.id, ErrorCode::io, "no fork"});
  EXPECT_TRUE(registry.on_process_ended({.process = admitted->process}).empty());
  ASSERT_TRUE(outcome.has_value());
  EXPECT_NE(outcome->message.find("no fork"), std::string::npos) << outcome->message;
  EXPECT_EQ(registry.process_count(), 0U);
}

TEST(ActorRegistry, fails_actors_that_wait_for_a_process_that_could_not_be_started) {
  ActorRegistry registry({{"node", 4, {0, 1}}}, Placement::pack, {});
  std::vector<std::string> outcomes;
  const auto done = [&](const Result<ActorAddress>& address) {
    outcomes.push_back(address.ok() ? "started" : address.error().message);
  };
  const auto first = registry.admit({.process = "p"}, "A", done);
  const auto second = registry.admit({.name = "late", .process = "p"}, "A", done);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_FALSE(second->starts_process);
  EXPECT_EQ(second->process, first->process);
  registry.on_failed({first->address.id, ErrorCode::io, "no fork"});
  (void)registry.on_process_ended({.process = first->process});
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_NE(outcomes[1].find("'late'"), std::string::npos) << outcomes[1];
  EXPECT_NE(outcomes[1].find("could not be started"), std::string::npos) << outcomes[1];
  const auto third = registry.admit({.process = "p"}, "A", done);
  ASSERT_TRUE(third.ok());
  EXPECT_TRUE(third->starts_process);
  EXPECT_NE(third->process, first->process) << "an id is never given out twice";
}

}  // namespace troupe
