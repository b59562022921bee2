#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/unit/fuzz/targets/targets.hpp"

namespace troupe::fuzz {
namespace {

class LongFuzz : public testing::TestWithParam<Target> {};

TEST_P(LongFuzz, finds_nothing_in_a_minute) { GetParam().run({.time = std::chrono::minutes(1)}); }

/// A million inputs of a target, in parts that processes share out among them. Hours for all: run
/// by hand with --gtest_also_run_disabled_tests --gtest_filter=*Million*, a process a core with
/// GTEST_TOTAL_SHARDS and GTEST_SHARD_INDEX.
class MillionInputs : public testing::TestWithParam<std::tuple<Target, std::uint64_t>> {};

constexpr std::uint64_t parts_of_million = 16;

TEST_P(MillionInputs, DISABLED_find_nothing) {
  const auto& [target, part] = GetParam();
  constexpr std::uint64_t inputs = 1'000'000 / parts_of_million;
  target.run({.time = std::chrono::hours(24), .inputs = inputs, .first_seed = part * inputs});
}

INSTANTIATE_TEST_SUITE_P(Inputs, LongFuzz, testing::ValuesIn(targets),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Inputs, MillionInputs,
                         testing::Combine(testing::ValuesIn(targets),
                                          testing::Range(std::uint64_t{0}, parts_of_million)),
                         [](const auto& info) {
                           return fmt::format("{}_part{}", std::get<0>(info.param).name,
                                              std::get<1>(info.param));
                         });

}  // namespace
}  // namespace troupe::fuzz
