#include "tests/fault/launcher/support/strangers.hpp"

#include <gtest/gtest.h>

namespace troupe::test {

TEST(Strangers, cannot_harm_a_running_job_with_thousands_of_connections) {
  expect_a_job_to_bear_strangers({});
}

TEST(Strangers, cannot_harm_a_running_job_over_network) {
  expect_a_job_to_bear_strangers({.parallel = "tensor_parallel_size: 2, collectives: network"});
}

}  // namespace troupe::test
