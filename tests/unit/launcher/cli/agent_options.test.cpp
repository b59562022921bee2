#include "launcher/cli/agent_options.hpp"

#include "tests/unit/launcher/cli/parsed_arguments.hpp"

namespace troupe {
namespace {

Parsed<AgentOptions> parse(const std::vector<std::string>& arguments) {
  return parse_for<AgentArguments>("agent", arguments);
}

TEST(AgentOptions, are_where_to_join_the_token_and_patience) {
  const AgentOptions given =
      options_of(parse({"--join", "[fd00::7]:7000", "--token-file", "t", "--wait", "5"}));
  EXPECT_EQ(given.join.host, "fd00::7");
  EXPECT_EQ(given.join.port, 7000);
  EXPECT_EQ(given.token_file, "t");
  EXPECT_EQ(given.patience, std::chrono::seconds(5));
}

TEST(AgentOptions, say_what_to_do_about_a_mistake) {
  expect_refused(parse, {{{"--token-file", "t"}, "--join"},
                         {{"--join", "h:7"}, "--token-file"},
                         {{"--join", "h", "--token-file", "t"}, "HOST:PORT"},
                         {{"--join", "h:0", "--token-file", "t"}, "HOST:PORT"},
                         {{"--join", "h:70000", "--token-file", "t"}, "HOST:PORT"},
                         {{"--join", "fd00::7:7000", "--token-file", "t"}, "HOST:PORT"},
                         {{"--join", "h:7", "--token-file", "t", "--wait", "0"}, "--wait"}});
  expect_help_fits_a_terminal(parse);
}

}  // namespace
}  // namespace troupe
