#include "runtime/actor/job_transport.hpp"

#include <gtest/gtest.h>

namespace troupe {

TEST(JobTransport, listens_under_a_name_that_nobody_can_guess) {
  const auto first = make_job_transport(Key{}, "job");
  const auto second = make_job_transport(Key{}, "job");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE((*first)->endpoint().starts_with("troupe-job-"));
  EXPECT_EQ((*first)->endpoint().size(), std::string("troupe-job-").size() + 32);
  EXPECT_NE((*first)->endpoint(), (*second)->endpoint());
}

}  // namespace troupe
