#include "launcher/job/node_trial.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(NodeTrial, judges_nobody_before_it_knows_where_checkpoints_are_staged) {
  PreflightNeeds needs;
  needs.stage_folder = "/cache";
  NodeTrial trial(needs, nullptr);
  EXPECT_FALSE(trial.can_judge());
  trial.set_folders({});  // all nodes read the checkpoint where it is
  EXPECT_TRUE(trial.can_judge());
}

TEST(NodeTrial, judges_at_once_where_nothing_is_staged) {
  EXPECT_TRUE(NodeTrial(PreflightNeeds{}, nullptr).can_judge());
}

}  // namespace
}  // namespace troupe
