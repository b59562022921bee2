#include "tests/process/launcher/support/many_nodes.hpp"

#include <gtest/gtest.h>

namespace troupe::launcher_test {
namespace {

TEST(ManyNodes, all_answer_if_256_agents_join_on_one_machine) { expect_all_nodes_to_answer(256); }

}  // namespace
}  // namespace troupe::launcher_test
