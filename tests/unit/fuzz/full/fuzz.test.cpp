#include <gtest/gtest.h>

#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

class LongFuzz : public testing::TestWithParam<Target> {};

TEST_P(LongFuzz, finds_nothing_in_a_minute) { GetParam().run({.time = std::chrono::minutes(1)}); }

INSTANTIATE_TEST_SUITE_P(Inputs, LongFuzz, testing::ValuesIn(targets),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::fuzz
