#include "runtime/base/invariant.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(InvariantDeathTest, ends_the_process_with_what_was_broken_and_why) {
  EXPECT_DEATH(require(fail(ErrorCode::internal, "block 7 is free"), "release of a table"),
               "release of a table: block 7 is free");
  EXPECT_DEATH(require(false, "two are one"), "two are one");
}

TEST(Invariant, does_nothing_where_all_is_well) {
  require(Result<void>(), "nothing");
  require(true, "nothing");
}

}  // namespace
}  // namespace troupe
