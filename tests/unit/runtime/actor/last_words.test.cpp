#include "runtime/actor/last_words.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

std::string last_words_of(const std::string& text) {
  const tests::TemporaryFolder folder;
  folder.write("agent.log", text);
  return last_words((folder.path() / "agent.log").string());
}

TEST(LastWords, are_the_last_line_that_is_not_empty) {
  EXPECT_EQ(last_words_of("one\ntwo  \r\n\n"), "two");
  EXPECT_EQ(last_words_of(""), "");
  EXPECT_EQ(last_words("/no/such/file"), "");
}

TEST(LastWords, are_the_agents_where_srun_adds_its_own) {
  const std::string agent =
      "[error] the agent of node n1 cannot join its job: cannot reach the driver";
  EXPECT_EQ(last_words_of(agent + "\nsrun: error: n1: task 0: Exited with exit code 1\n"
                                  "srun: Terminating StepId=7.0\n"),
            agent);
  EXPECT_THAT(remedy_for_unreached_driver(agent), testing::HasSubstr("cluster.ports"));
}

TEST(LastWords, are_those_of_srun_where_the_agent_said_nothing) {
  const std::string srun = "srun: error: Unable to create step: Requested nodes are busy";
  EXPECT_EQ(last_words_of(srun + "\n"), srun);
  EXPECT_EQ(remedy_for_unreached_driver(srun), "");
}

}  // namespace
}  // namespace troupe
