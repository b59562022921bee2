#include "launcher/cli/collectives_bench_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/parsed_arguments.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;

Parsed<CollectivesBenchOptions> parse(const std::vector<std::string>& arguments) {
  return parse_for<CollectivesBenchArguments>("bench collectives", arguments);
}

TEST(CollectivesBenchOptions, take_sizes_in_order_and_once) {
  const auto parsed = parse({"--config", "c.yaml", "--bytes", "64,8,64,4096", "--seconds=2"});
  ASSERT_TRUE(std::holds_alternative<CollectivesBenchOptions>(parsed));
  const auto& options = std::get<CollectivesBenchOptions>(parsed);
  EXPECT_EQ(options.config.path, "c.yaml");
  EXPECT_THAT(options.bytes, ElementsAre(8, 64, 4096));
  EXPECT_EQ(options.seconds, 2);
}

TEST(CollectivesBenchOptions, refuse_mistakes_with_the_way_out) {
  expect_refused(parse, {{{}, "Give --config FILE"},
                         {{"--config", "c.yaml", "--byte", "8"}, "--bytes"},
                         {{"--config", "c.yaml", "--bytes", "0"}, "--bytes"},
                         {{"--config", "c.yaml", "--bytes", "12"}, "a multiple of 8"},
                         {{"--config", "c.yaml", "fast"}, "unexpected argument fast"}});
}

TEST(CollectivesBenchOptions, help_fits_a_terminal) { expect_help_fits_a_terminal(parse); }

}  // namespace
}  // namespace troupe
