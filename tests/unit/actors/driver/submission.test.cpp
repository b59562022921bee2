#include <gtest/gtest.h>

#include "actors/driver/domain.hpp"

namespace troupe {
namespace {

TEST(Submission, to_an_executor_that_takes_no_calls_is_made_again_and_not_answered) {
  EXPECT_EQ(after_submission(fail(ErrorCode::resource_exhausted, "no credit")),
            AfterSubmission::submit_again);
}

TEST(Submission, that_ends_with_the_engine_leaves_its_requests_to_the_next_run) {
  for (const ErrorCode gone : {ErrorCode::actor_died, ErrorCode::actor_unavailable}) {
    EXPECT_EQ(after_submission(fail(gone, "killed")), AfterSubmission::nothing);
  }
  EXPECT_EQ(after_submission(fail(ErrorCode::cancelled, "shutting down")),
            AfterSubmission::nothing);
  EXPECT_EQ(after_submission({}), AfterSubmission::nothing);
}

TEST(Submission, that_the_executor_failed_on_is_answered) {
  EXPECT_EQ(after_submission(fail(ErrorCode::internal, "out of memory")), AfterSubmission::refuse);
}

}  // namespace
}  // namespace troupe
