#include "tests/process/launcher/support/topologies.hpp"

#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"

// Arrangements that tests/process/launcher/topologies.test.cpp leaves out: all over the network,
// and those without experts with a dense model.

namespace troupe::launcher_test {
namespace {

class EveryArrangement : public testing::TestWithParam<Topology> {};

TEST_P(EveryArrangement, gives_the_bytes_of_one_rank_over_network) {
  expect_the_bytes_of_one_rank(GetParam(), "network", golden_input());
}

TEST_P(EveryArrangement, gives_the_bytes_of_one_rank_with_a_dense_model) {
  if (GetParam().experts) GTEST_SKIP() << "fable-dense has no experts";
  const auto model = golden::golden_model("fable-dense");
  if (!model) GTEST_SKIP() << golden::missing_model_message("fable-dense");
  for (const std::string collectives : {"shm", "network"}) {
    expect_the_bytes_of_one_rank(GetParam(), collectives, golden_input(), model->checkpoint);
  }
}

INSTANTIATE_TEST_SUITE_P(Launcher, EveryArrangement, testing::ValuesIn(topologies()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::launcher_test
