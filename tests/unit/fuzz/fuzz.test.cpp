#include <stdexcept>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

class Fuzz : public testing::TestWithParam<Target> {};

TEST_P(Fuzz, finds_nothing_in_a_second) { GetParam().run({.time = std::chrono::seconds(1)}); }

TEST(ForSeeds, name_the_seed_at_which_an_exception_escapes) {
  const auto throw_late = [](std::uint64_t seed) {
    if (seed == 120) throw std::out_of_range("too far");
  };
  EXPECT_NONFATAL_FAILURE(for_seeds({.first_seed = 100}, throw_late), "seed 120");
}

INSTANTIATE_TEST_SUITE_P(Inputs, Fuzz, testing::ValuesIn(targets),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::fuzz
