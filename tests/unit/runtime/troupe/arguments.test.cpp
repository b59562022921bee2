#include "runtime/troupe/arguments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StateCommand parsed(const std::vector<std::string>& words) {
  auto command = parse_troupe_arguments(words);
  if (!command.ok()) throw std::runtime_error(command.error().message);
  return std::get<StateCommand>(*command);
}
std::string refusal(const std::vector<std::string>& words) {
  const auto command = parse_troupe_arguments(words);
  return command.ok() ? "taken" : command.error().message;
}

TEST(TroupeArguments, options_may_stand_before_and_behind_words) {
  const StateCommand logs =
      parsed({"logs", "-f", "worker-0", "--lines=20", "driver", "--cluster", "stories", "--json"});
  EXPECT_THAT(logs.logs, ElementsAre("worker-0", "driver"));
  EXPECT_EQ(logs.cluster, "stories");
  EXPECT_EQ(logs.lines, 20U);
  EXPECT_TRUE(logs.follows);
  EXPECT_TRUE(logs.json);
  const StateCommand actors = parsed({"actors", "7", "--limit", "0", "--ended", "5"});
  EXPECT_EQ(actors.cluster, "7");
  EXPECT_EQ(actors.limit, 0U);
  EXPECT_EQ(actors.ended, 5U);
  EXPECT_EQ(parsed({"stop", "--wait", "0"}).wait, std::chrono::seconds(0));
}

TEST(TroupeArguments, name_a_node_behind_its_cluster_and_hosts_for_one) {
  const StateCommand only = parsed({"drain", "h2"});
  EXPECT_EQ(only.node, "h2");
  EXPECT_EQ(only.cluster, "");
  const StateCommand drain = parsed({"drain", "stories", "h2", "--json"});
  EXPECT_EQ(drain.node, "h2");
  EXPECT_EQ(drain.cluster, "stories");
  const StateCommand join = parsed({"join", "stories", "h3", "me@h4:2222"});
  EXPECT_EQ(join.cluster, "stories");
  EXPECT_THAT(join.hosts, ElementsAre("h3", "me@h4:2222"));
  EXPECT_THAT(refusal({"drain"}), HasSubstr("which node?"));
  EXPECT_THAT(refusal({"drain", "a", "b", "c"}), HasSubstr("which node?"));
  EXPECT_THAT(refusal({"join"}), HasSubstr("which cluster?"));
}

TEST(TroupeArguments, what_cannot_be_meant_is_refused_with_what_can) {
  EXPECT_THAT(refusal({"nonsense"}), HasSubstr("troupe --help"));
  EXPECT_THAT(refusal({"status", "a", "b"}), HasSubstr("unexpected argument b"));
  EXPECT_THAT(refusal({"status", "--lines", "3"}), HasSubstr("unknown option --lines"));
  EXPECT_THAT(refusal({"logs", "x", "-n"}), HasSubstr("wants a value"));
  EXPECT_THAT(refusal({"logs", "x", "-n", "-1"}), HasSubstr("whole number"));
  EXPECT_THAT(refusal({"logs", "x", "-n", "99999999999999999999"}), HasSubstr("whole number"));
  EXPECT_THAT(refusal({"logs", "-f"}), HasSubstr("whose log?"));
  EXPECT_THAT(refusal({"status", "--json=yes"}), HasSubstr("takes no value"));
  EXPECT_THAT(refusal({"actors", "--ended", "5000"}), HasSubstr("4096"));
  EXPECT_THAT(refusal({"status", "--clean"}), HasSubstr("name it"));
  EXPECT_TRUE(parsed({"status", "--clean", "c7:12"}).cleans);
}

}  // namespace
}  // namespace troupe
