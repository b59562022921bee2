#include "launcher/cli/collectives_bench_options.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::variant<CollectivesBenchOptions, EarlyExit> parse(const std::vector<std::string>& arguments) {
  return parse_collectives_bench_options(arguments);
}

TEST(CollectivesBenchOptions, take_sizes_in_order_and_once) {
  const auto parsed = parse({"--config", "c.yaml", "--bytes", "64,8,64,4096", "--seconds=2"});
  ASSERT_TRUE(std::holds_alternative<CollectivesBenchOptions>(parsed));
  const auto& options = std::get<CollectivesBenchOptions>(parsed);
  EXPECT_EQ(options.config_path, "c.yaml");
  EXPECT_THAT(options.bytes, ElementsAre(8, 64, 4096));
  EXPECT_EQ(options.seconds, 2);
}

TEST(CollectivesBenchOptions, refuse_mistakes_with_the_way_out) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "Give --config FILE"},
      {{"--config", "c.yaml", "--byte", "8"}, "--bytes"},
      {{"--config", "c.yaml", "--bytes", "0"}, "--bytes"},
      {{"--config", "c.yaml", "--bytes", "12"}, "a multiple of 8"},
      {{"--config", "c.yaml", "fast"}, "unexpected argument fast"}};
  for (const auto& [arguments, message] : cases) {
    const auto parsed = parse(arguments);
    ASSERT_TRUE(std::holds_alternative<EarlyExit>(parsed)) << message;
    EXPECT_THAT(std::get<EarlyExit>(parsed).text, HasSubstr(message));
    EXPECT_EQ(std::get<EarlyExit>(parsed).code, ExitCode::refused);
  }
}

TEST(CollectivesBenchOptions, help_fits_a_terminal) {
  const auto parsed = parse({"--help"});
  ASSERT_TRUE(std::holds_alternative<EarlyExit>(parsed));
  EXPECT_EQ(std::get<EarlyExit>(parsed).code, ExitCode::all_answered);
  std::istringstream lines(std::get<EarlyExit>(parsed).text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

}  // namespace
}  // namespace troupe
