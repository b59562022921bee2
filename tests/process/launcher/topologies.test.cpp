#include "tests/process/launcher/support/topologies.hpp"

#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"

// The same bytes in whatever arrangement of ranks, through real processes.

namespace troupe::launcher_test {
namespace {

std::vector<Topology> over_gloo() {
  std::vector<Topology> some;
  for (const Topology& topology : topologies()) {
    if (topology.name == "tp2" || topology.name == "tp2_pp2_ep2_sp" || topology.name == "dp2_ep2") {
      some.push_back(topology);
    }
  }
  return some;
}

class Arrangement : public testing::TestWithParam<Topology> {};

TEST_P(Arrangement, gives_the_bytes_of_one_rank) {
  expect_the_bytes_of_one_rank(GetParam(), "shm");
}

INSTANTIATE_TEST_SUITE_P(Launcher, Arrangement, testing::ValuesIn(topologies()),
                         [](const auto& info) { return info.param.name; });

class ArrangementOverGloo : public testing::TestWithParam<Topology> {};

TEST_P(ArrangementOverGloo, gives_the_bytes_of_one_rank) {
  expect_the_bytes_of_one_rank(GetParam(), "gloo");
}

INSTANTIATE_TEST_SUITE_P(Launcher, ArrangementOverGloo, testing::ValuesIn(over_gloo()),
                         [](const auto& info) { return info.param.name; });

TEST(StepDomain, answers_on_while_one_of_its_replicas_has_no_requests) {
  // Two replicas that share experts, and one request: the other replica only serves its experts.
  const std::string input =
      requests_of(batch_folder() / "batch-64.jsonl", 1, {{"return_token_ids", true}});
  const Answers alone = answers_to(input);
  ASSERT_EQ(alone.size(), 1U);
  expect_same_payloads(
      alone,
      answers_to(input, {"parallel.data_parallel_size=2", "parallel.expert_parallel_size=2"}),
      "two replicas");
}

}  // namespace
}  // namespace troupe::launcher_test
