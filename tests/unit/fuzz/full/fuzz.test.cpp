#include <gtest/gtest.h>

#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

class LongFuzz : public testing::TestWithParam<Target> {};

TEST_P(LongFuzz, finds_nothing_in_a_minute) { GetParam().run({.time = std::chrono::minutes(1)}); }

// Takes hours: run by hand with --gtest_also_run_disabled_tests --gtest_filter=...
TEST_P(LongFuzz, DISABLED_finds_nothing_in_a_million_inputs) {
  GetParam().run({.time = std::chrono::hours(24), .inputs = 1'000'000});
}

INSTANTIATE_TEST_SUITE_P(Inputs, LongFuzz, testing::ValuesIn(targets),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::fuzz
