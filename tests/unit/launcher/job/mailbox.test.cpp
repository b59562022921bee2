#include "launcher/job/mailbox.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(Mailbox, adds_up_how_far_the_ranks_are_with_their_weights) {
  Mailbox mailbox;
  EXPECT_EQ(mailbox.loading().total_bytes, 0U);
  mailbox.put(LoadingState{.rank = 0, .bytes = 10, .total_bytes = 100});
  mailbox.put(LoadingState{.rank = 1, .bytes = 20, .total_bytes = 200});
  mailbox.put(LoadingState{.rank = 0, .bytes = 90, .total_bytes = 100});
  EXPECT_EQ(mailbox.loading().bytes, 110U);
  EXPECT_EQ(mailbox.loading().total_bytes, 300U);
  EXPECT_TRUE(mailbox.take(std::chrono::milliseconds(0)).empty());
}

}  // namespace
}  // namespace troupe
