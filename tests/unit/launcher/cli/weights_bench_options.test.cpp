#include "launcher/cli/weights_bench_options.hpp"

#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/parsed_arguments.hpp"

namespace troupe {
namespace {

Parsed<WeightsBenchOptions> parse(const std::vector<std::string>& arguments) {
  return parse_for<WeightsBenchArguments>("bench weights", arguments);
}

TEST(WeightsBenchOptions, say_what_is_read_and_how_often) {
  const auto parsed = parse({"--config", "c.yaml", "--make", "here", "--cold", "--repeat=5"});
  ASSERT_TRUE(std::holds_alternative<WeightsBenchOptions>(parsed));
  const auto& options = std::get<WeightsBenchOptions>(parsed);
  EXPECT_EQ(options.config.path, "c.yaml");
  EXPECT_EQ(options.make_folder, "here");
  EXPECT_TRUE(options.cold);
  EXPECT_EQ(options.repeat, 5);
}

TEST(WeightsBenchOptions, refuse_mistakes_with_the_way_out) {
  expect_refused(parse, {{{}, "Give --config FILE"},
                         {{"--config", "c.yaml", "--mak", "here"}, "--make"},
                         {{"--config", "c.yaml", "--repeat", "0"}, "--repeat"},
                         {{"--config", "c.yaml", "fast"}, "unexpected argument fast"}});
}

TEST(WeightsBenchOptions, help_fits_a_terminal) { expect_help_fits_a_terminal(parse); }

}  // namespace
}  // namespace troupe
