#include <gtest/gtest.h>

#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

class Fuzz : public testing::TestWithParam<Target> {};

TEST_P(Fuzz, finds_nothing_in_a_second) { GetParam().run({.time = std::chrono::seconds(1)}); }

INSTANTIATE_TEST_SUITE_P(Inputs, Fuzz, testing::ValuesIn(targets),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::fuzz
