#include "launcher/cli/ops_bench_options.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::variant<OpsBenchOptions, EarlyExit> parse(const std::vector<std::string>& arguments) {
  return parse_ops_bench_options(arguments);
}

TEST(OpsBenchOptions, take_rows_in_order_and_once) {
  const auto parsed = parse({"--config", "c.yaml", "--rows", "64,1,64,8", "--context=100"});
  ASSERT_TRUE(std::holds_alternative<OpsBenchOptions>(parsed));
  const auto& options = std::get<OpsBenchOptions>(parsed);
  EXPECT_EQ(options.config_path, "c.yaml");
  EXPECT_THAT(options.rows, ElementsAre(1, 8, 64));
  EXPECT_EQ(options.context, 100);
}

TEST(OpsBenchOptions, refuse_mistakes_with_the_way_out) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "Give --config FILE"},
      {{"--config", "c.yaml", "--row", "1"}, "--rows"},
      {{"--config", "c.yaml", "--rows", "0"}, "--rows"},
      {{"--config", "c.yaml", "fast"}, "unexpected argument fast"}};
  for (const auto& [arguments, message] : cases) {
    const auto parsed = parse(arguments);
    ASSERT_TRUE(std::holds_alternative<EarlyExit>(parsed)) << message;
    EXPECT_THAT(std::get<EarlyExit>(parsed).text, HasSubstr(message));
    EXPECT_EQ(std::get<EarlyExit>(parsed).code, ExitCode::refused);
  }
}

TEST(OpsBenchOptions, help_fits_a_terminal) {
  const auto parsed = parse({"--help"});
  ASSERT_TRUE(std::holds_alternative<EarlyExit>(parsed));
  EXPECT_EQ(std::get<EarlyExit>(parsed).code, ExitCode::all_answered);
  std::istringstream lines(std::get<EarlyExit>(parsed).text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

}  // namespace
}  // namespace troupe
