#include "launcher/cli/ops_bench_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/parsed_arguments.hpp"

namespace troupe {
namespace {

using testing::ElementsAre;

Parsed<OpsBenchOptions> parse(const std::vector<std::string>& arguments) {
  return parse_for<OpsBenchArguments>("bench ops", arguments);
}

TEST(OpsBenchOptions, take_rows_in_order_and_once) {
  const auto parsed = parse({"--config", "c.yaml", "--rows", "64,1,64,8", "--context=100"});
  ASSERT_TRUE(std::holds_alternative<OpsBenchOptions>(parsed));
  const auto& options = std::get<OpsBenchOptions>(parsed);
  EXPECT_EQ(options.config.path, "c.yaml");
  EXPECT_THAT(options.rows, ElementsAre(1, 8, 64));
  EXPECT_EQ(options.context, 100);
}

TEST(OpsBenchOptions, take_shapes_of_attention) {
  const auto parsed =
      parse({"--config", "c.yaml", "--attention", "71/1x64,64/8x64:window=128:sinks:cap=2.5"});
  ASSERT_TRUE(std::holds_alternative<OpsBenchOptions>(parsed));
  EXPECT_THAT(
      std::get<OpsBenchOptions>(parsed).attention,
      ElementsAre(BenchedAttention{71, 1, 64}, BenchedAttention{64, 8, 64, 128, 2.5F, true}));
}

TEST(OpsBenchOptions, take_a_prefix_shorter_than_the_context) {
  const auto parsed = parse({"--config", "c.yaml", "--context", "4256", "--prefix", "4000"});
  ASSERT_TRUE(std::holds_alternative<OpsBenchOptions>(parsed));
  EXPECT_EQ(std::get<OpsBenchOptions>(parsed).prefix, 4000);
}

TEST(OpsBenchOptions, refuse_mistakes_with_the_way_out) {
  expect_refused(parse, {{{}, "Give --config FILE"},
                         {{"--config", "c.yaml", "--row", "1"}, "--rows"},
                         {{"--config", "c.yaml", "--rows", "0"}, "--rows"},
                         {{"--config", "c.yaml", "--prefix", "512"}, "--prefix"},
                         {{"--config", "c.yaml", "--attention", "32x64"}, "--attention"},
                         {{"--config", "c.yaml", "--attention", "8/2x64:sink"}, "8/2x64:sink"},
                         {{"--config", "c.yaml", "fast"}, "unexpected argument fast"}});
}

TEST(OpsBenchOptions, help_fits_a_terminal) { expect_help_fits_a_terminal(parse); }

}  // namespace
}  // namespace troupe
