#include "launcher/cli/weights_bench_options.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::HasSubstr;

std::variant<WeightsBenchOptions, EarlyExit> parse(const std::vector<std::string>& arguments) {
  return parse_weights_bench_options(arguments);
}

TEST(WeightsBenchOptions, say_what_is_read_and_how_often) {
  const auto parsed = parse({"--config", "c.yaml", "--make", "here", "--cold", "--repeat=5"});
  ASSERT_TRUE(std::holds_alternative<WeightsBenchOptions>(parsed));
  const auto& options = std::get<WeightsBenchOptions>(parsed);
  EXPECT_EQ(options.config_path, "c.yaml");
  EXPECT_EQ(options.make_folder, "here");
  EXPECT_TRUE(options.cold);
  EXPECT_EQ(options.repeat, 5);
}

TEST(WeightsBenchOptions, refuse_mistakes_with_the_way_out) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "Give --config FILE"},
      {{"--config", "c.yaml", "--mak", "here"}, "--make"},
      {{"--config", "c.yaml", "--repeat", "0"}, "--repeat"},
      {{"--config", "c.yaml", "fast"}, "unexpected argument fast"}};
  for (const auto& [arguments, message] : cases) {
    const auto parsed = parse(arguments);
    ASSERT_TRUE(std::holds_alternative<EarlyExit>(parsed)) << message;
    EXPECT_THAT(std::get<EarlyExit>(parsed).text, HasSubstr(message));
    EXPECT_EQ(std::get<EarlyExit>(parsed).code, ExitCode::refused);
  }
}

TEST(WeightsBenchOptions, help_fits_a_terminal) {
  const auto parsed = parse({"--help"});
  ASSERT_TRUE(std::holds_alternative<EarlyExit>(parsed));
  EXPECT_EQ(std::get<EarlyExit>(parsed).code, ExitCode::all_answered);
  std::istringstream lines(std::get<EarlyExit>(parsed).text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

}  // namespace
}  // namespace troupe
