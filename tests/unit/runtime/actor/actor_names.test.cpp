#include "runtime/actor/actor_names.hpp"

#include <gtest/gtest.h>

namespace troupe {

TEST(ActorNames, are_unique_within_a_namespace) {
  ActorNames names;
  names.add(names.full_name("counter", ""), 1);
  names.add(names.full_name("counter", "blue"), 2);
  EXPECT_EQ(names.find("counter"), 1U);
  EXPECT_EQ(names.find("blue/counter"), 2U);
  EXPECT_EQ(names.find("green/counter"), std::nullopt);
  EXPECT_EQ(names.check("counter", "").error().code, ErrorCode::already_exists);
  EXPECT_EQ(names.check("counter", "blue").error().code, ErrorCode::already_exists);
  EXPECT_TRUE(names.check("counter", "green").ok());
  EXPECT_EQ(names.check("a/b", "").error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(names.check("b", "a/b").error().code, ErrorCode::invalid_argument);
}

TEST(ActorNames, leave_out_the_default_namespace_however_it_is_given) {
  const ActorNames names("blue");
  EXPECT_EQ(names.full_name("counter", ""), "counter");
  EXPECT_EQ(names.full_name("counter", "blue"), "counter");
  EXPECT_EQ(names.full_name("blue/counter", ""), "counter");
  EXPECT_EQ(names.full_name("green/counter", ""), "green/counter");
  EXPECT_EQ(names.full_name("counter", "green"), "green/counter");
}

TEST(ActorNames, tell_which_namespaces_have_a_name_that_is_missing_in_one) {
  ActorNames names;
  names.add("green/counter", 1);
  EXPECT_EQ(names.missing("counter", "").message,
            "no actor is named 'counter'; in other namespaces there is 'green/counter'");
  names.add("counter", 2);
  EXPECT_EQ(names.missing("counter", "blue").message,
            "no actor is named 'blue/counter'; in other namespaces there are 'counter', "
            "'green/counter'");
  EXPECT_EQ(names.missing("blue/counter", "").message, names.missing("counter", "blue").message);
  for (const char* space : {"a", "b", "c", "d", "e"}) names.add(names.full_name("many", space), 3);
  EXPECT_EQ(names.missing("many", "").message,
            "no actor is named 'many'; in other namespaces there are 'a/many', 'b/many', 'c/many', "
            "'d/many', 'e/many'");
  names.add("f/many", 4);
  EXPECT_TRUE(names.missing("many", "").message.ends_with("'e/many', others"))
      << names.missing("many", "").message;
  names.erase("green/counter");
  names.erase("counter");
  EXPECT_EQ(names.missing("counter", "blue").message, "no actor is named 'blue/counter'");
  EXPECT_EQ(names.find("green/counter"), std::nullopt);
}

}  // namespace troupe
