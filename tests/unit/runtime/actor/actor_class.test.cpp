#include "runtime/actor/actor_class.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/actor/actor_types.hpp"
#include "runtime/actor/cluster.hpp"

namespace troupe::test {

template <class T>
class Box {
 public:
  using Methods = troupe::Methods<>;
};

/// Has a type beside its name.
class Plugged {
 public:
  using Methods = troupe::Methods<>;
  static constexpr std::string_view actor_type = "a plug";
};

/// Spawned by a function that nobody calls.
class Spawned {
 public:
  using Methods = troupe::Methods<>;
};
[[maybe_unused]] auto spawn_one(Cluster& cluster) { return cluster.spawn<Spawned>({}); }

/// Spawned nowhere.
class Forgotten {
 public:
  using Methods = troupe::Methods<>;
};

namespace {

using ::testing::HasSubstr;

class Hidden {};

TROUPE_ACTOR(Plugged);
TROUPE_ACTOR(Box<int>);

TEST(ActorType, is_the_class_s_name_unless_it_has_one_of_its_own) {
  EXPECT_EQ(actor_type_of<Box<int>>(), "troupe::test::Box<int>");
  EXPECT_EQ(actor_type_of<Plugged>(), "a plug");
  EXPECT_EQ(actor_type_of<Hidden>(), "troupe::test::Hidden");
}

TEST(ActorClass, is_registered_by_the_line_for_it_or_by_a_spawn_anywhere_in_the_program) {
  const ActorTypes none;
  EXPECT_TRUE(none.find("a plug").ok());
  EXPECT_TRUE(none.find("troupe::test::Box<int>").ok());
  EXPECT_TRUE(none.find("troupe::test::Spawned").ok());
  const auto forgotten = none.find("troupe::test::Forgotten");
  ASSERT_FALSE(forgotten.ok());
  EXPECT_EQ(forgotten.error().code, ErrorCode::not_found);
  EXPECT_THAT(forgotten.error().message, HasSubstr("TROUPE_ACTOR(troupe::test::Forgotten)"));
}

TEST(ActorClass, may_register_twice_but_two_classes_of_a_name_are_refused_with_their_files) {
  const auto name = [] { return std::string_view("twin"); };
  static const actor_detail::ActorClass first(name, typeid(int), nullptr, "one.cpp");
  static const actor_detail::ActorClass again(name, typeid(int), nullptr, "plugin.cpp");
  ASSERT_TRUE(actor_detail::check_classes().ok());
  EXPECT_EQ(*actor_detail::find_class("twin"), &first) << "what came first stays";

  static const actor_detail::ActorClass other(name, typeid(float), nullptr, "two.cpp");
  const auto checked = actor_detail::check_classes();
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(checked.error().message, HasSubstr("'twin'"));
  EXPECT_THAT(checked.error().message, HasSubstr("plugin.cpp"));
  EXPECT_THAT(checked.error().message, HasSubstr("two.cpp"));
  EXPECT_FALSE(ActorTypes().find("twin").ok());
}

TEST(ClusterStart, without_init_is_refused_before_any_process_starts) {
  const auto cluster = Cluster::start({});
  ASSERT_FALSE(cluster.ok());
  EXPECT_EQ(cluster.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(cluster.error().message, HasSubstr("troupe::init(argc, argv) has not been called"));
}

}  // namespace
}  // namespace troupe::test
