#include <map>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/process/runtime/state/state_fixture.hpp"
#include "tests/support/another_uid.hpp"

namespace troupe::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(State, says_where_it_looked_if_no_cluster_runs) {
  const Said status = troupe({"status"});
  EXPECT_EQ(status.code, 0);
  EXPECT_THAT(status.text, HasSubstr(clusters().string()));
  EXPECT_EQ(troupe({"nodes"}).code, 2);
  EXPECT_EQ(json::parse(troupe({"status", "--json"}).text)["clusters"].size(), 0U);
}

TEST_F(State, shows_a_running_cluster_with_its_nodes_actors_and_groups) {
  const auto program = start_program("one");
  const auto status = json::parse(troupe({"status", "--json"}).text)["clusters"];
  ASSERT_EQ(status.size(), 1U);
  EXPECT_EQ(status[0]["name"], "one");
  EXPECT_EQ(status[0]["pid"], program.pid());
  EXPECT_EQ(status[0]["nodes_alive"], 1);
  EXPECT_EQ(status[0]["actors"], 2);
  EXPECT_EQ(status[0]["placement_groups"], 1);
  EXPECT_EQ(status[0]["program_state"], "1 of 2 parts serve");
  EXPECT_THAT(troupe({"status"}).text, HasSubstr("one: 1 of 2 parts serve\n"));
  const auto nodes = json::parse(troupe({"nodes", "--json"}).text)["nodes"];
  EXPECT_EQ(nodes[0]["state"], "alive");
  EXPECT_EQ(nodes[0]["total"]["devices"], 2);
  EXPECT_EQ(nodes[0]["free"]["devices"], 1);
  const auto actors = json::parse(troupe({"actors", "one", "--json"}).text)["actors"];
  ASSERT_EQ(actors.size(), 2U);
  EXPECT_EQ(actors[0]["name"], "first");
  EXPECT_EQ(actors[0]["state"], "alive");
  EXPECT_EQ(actors[1]["devices"], json::array({0}));
  const auto groups = json::parse(troupe({"groups", "--json"}).text)["placement_groups"];
  EXPECT_EQ(groups[0]["bundles"][0]["actors"], 1);
  for (const char* command : {"status", "nodes", "actors", "groups"}) {
    const Said table = troupe({command});
    EXPECT_EQ(table.code, 0) << table.text;
    std::istringstream lines(table.text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  }
}

TEST_F(State, tells_actors_of_one_name_in_different_namespaces_apart) {
  const auto program = start_program("one", "namespaces");
  const auto actors = json::parse(troupe({"actors", "--json"}).text)["actors"];
  ASSERT_EQ(actors.size(), 3U);
  EXPECT_EQ(actors[0]["name"], "first");
  EXPECT_EQ(actors[2]["name"], "green/first");
  EXPECT_THAT(troupe({"actors"}).text, HasSubstr(" green/first "));
  EXPECT_EQ(troupe({"logs", "green/first"}).code, 0);
  EXPECT_EQ(actors[2]["log_path"], home() + "/logs-one/green.first.log");
  const Said missing = troupe({"stack", "red/first"});
  EXPECT_NE(missing.code, 0);
  EXPECT_THAT(missing.text, HasSubstr("in other namespaces there are 'first', 'green/first'"));
}

TEST_F(State, says_how_many_actors_a_limit_leaves_out) {
  const auto program = start_program("one");
  const Said one = troupe({"actors", "--limit", "1"});
  EXPECT_EQ(one.code, 0) << one.text;
  EXPECT_THAT(one.text, HasSubstr("first"));
  EXPECT_THAT(one.text, Not(HasSubstr("second")));
  EXPECT_THAT(one.text, HasSubstr("1 of 2 actors are left out"));
  EXPECT_EQ(json::parse(troupe({"actors", "--limit", "1", "--json"}).text)["actors_left_out"], 1);
  for (const char* limit : {"0", "2", "1000"}) {
    const json all = json::parse(troupe({"actors", "--limit", limit, "--json"}).text);
    EXPECT_EQ(all["actors"].size(), 2U) << limit;
    EXPECT_EQ(all["actors_left_out"], 0) << limit;
  }
  EXPECT_THAT(troupe({"logs", "--limit", "1"}).text, HasSubstr("1 of 2 actors are left out"));
}

TEST_F(State, shows_more_groups_and_nodes_than_a_page_has) {
  const auto groups = start_program("one", "groups");
  const json shown = json::parse(troupe({"groups", "--json"}).text)["placement_groups"];
  ASSERT_EQ(shown.size(), many + 1U);
  EXPECT_EQ(shown[0]["name"], "pair");
  for (int i = 0; i < many; ++i) EXPECT_EQ(shown[i + 1]["name"], fmt::format("group-{}", i));
  const auto nodes = start_program("two", "awaits");
  const json awaited = json::parse(troupe({"nodes", "two", "--json"}).text)["nodes"];
  ASSERT_EQ(awaited.size(), std::size_t{many});
  for (int i = 0; i < many; ++i) {
    EXPECT_EQ(awaited[i]["state"], "awaited");
    EXPECT_EQ(awaited[i]["total"]["cpus"], i) << "in the order of the cluster's nodes";
  }
  EXPECT_EQ(json::parse(troupe({"logs", "--cluster", "two", "--json"}).text)["logs"].size(),
            many + 1U);
}

TEST_F(State, lists_objects_with_their_owners_places_and_references) {
  const auto program = start_program("one", "objects");
  const auto listed = [&] { return json::parse(troupe({"objects", "--json"}).text); };
  const json all = listed();
  EXPECT_EQ(all["objects_left_out"], 0);
  EXPECT_EQ(all["silent"].size(), 0U);
  std::map<std::string, json> by_place;
  for (const json& one : all["objects"]) by_place[one["where"]] = one;
  ASSERT_EQ(all["objects"].size(), 3U) << all.dump();
  EXPECT_EQ(by_place["inside"]["bytes"], 5);
  EXPECT_EQ(by_place["inside"]["owner"], "driver");
  EXPECT_EQ(by_place["memory"]["bytes"], 4 << 20);
  EXPECT_EQ(by_place["memory"]["copies"], 1);
  EXPECT_EQ(by_place["memory"]["borrowers"], 1);
  EXPECT_EQ(by_place["memory"]["pins"], 1);
  EXPECT_EQ(by_place["memory"]["node"], "driver");
  EXPECT_EQ(by_place["pending"]["bytes"], 0);
  const Said table = troupe({"objects"});
  EXPECT_EQ(table.code, 0) << table.text;
  EXPECT_THAT(table.text, HasSubstr("4.00 MiB"));
  std::istringstream lines(table.text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  const Said one = troupe({"objects", "one", "--limit", "1"});
  EXPECT_THAT(one.text, HasSubstr("2 of 3 objects are left out"));
  EXPECT_EQ(json::parse(troupe({"objects", "--limit", "2", "--json"}).text)["objects_left_out"], 1);
  const std::string metrics = troupe({"metrics"}).text;
  EXPECT_THAT(metrics, HasSubstr("\ntroupe_objects 3\n"));
  EXPECT_THAT(metrics, HasSubstr("\ntroupe_object_bytes{where=\"memory\"} 4194304\n"));
  EXPECT_THAT(metrics, HasSubstr("\ntroupe_object_bytes{where=\"spilled\"} 0\n"));
}

TEST_F(State, shows_more_objects_than_a_page_has) {
  const auto program = start_program("one", "many objects");
  const json all = json::parse(troupe({"objects", "--json"}).text)["objects"];
  ASSERT_EQ(all.size(), std::size_t{many});
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_NE(all[i]["id"], all[i - 1]["id"]);
}

TEST_F(State, help_fits_80_columns) {
  for (const char* command : {"status", "nodes", "actors", "groups", "objects", "logs", "metrics",
                              "stack", "timeline", "drain", "join", "stop", "--help"}) {
    const Said help = troupe({command, "--help"});
    EXPECT_EQ(help.code, 0);
    std::istringstream lines(help.text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  }
}

TEST_F(State, wants_a_name_if_several_run) {
  const auto one = start_program("one"), two = start_program("two");
  const Said said = troupe({"actors"});
  EXPECT_EQ(said.code, 2);
  EXPECT_THAT(said.text, HasSubstr("one (pid"));
  EXPECT_THAT(said.text, HasSubstr("two (pid"));
  EXPECT_EQ(troupe({"actors", "two"}).code, 0);
  EXPECT_EQ(troupe({"actors", std::to_string(one.pid())}).code, 0);
}

TEST_F(State, shows_the_restarts_of_an_actor_and_prints_its_log) {
  const auto program = start_program("one");
  const auto first = [&] { return json::parse(troupe({"actors", "--json"}).text)["actors"][0]; };
  ASSERT_EQ(::kill(first()["pid"].get<int>(), SIGKILL), 0);
  const auto until = std::chrono::steady_clock::now() + limit;
  json actor = first();
  while (actor["restarts"] == 0 || actor["state"] != "alive") {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << actor;
    actor = first();
  }
  EXPECT_THAT(actor["last_end"].get<std::string>(), HasSubstr("SIGKILL"));
  const Said log = troupe({"logs", "node0"});
  EXPECT_EQ(log.code, 0) << log.text;
  EXPECT_THAT(log.text, HasSubstr("agent-node0"));
  EXPECT_EQ(troupe({"logs", "nobody"}).code, 2);
}

TEST_F(State, stop_ends_a_program_in_order_and_removes_its_file) {
  auto program = start_program("one");
  const Said said = troupe({"stop"});
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_THAT(said.text, HasSubstr("has ended"));
  EXPECT_THAT(text_of(home() + "/one.out"), HasSubstr("ends in order"));
  EXPECT_EQ(files(), 0U);
}

TEST_F(State, stop_ends_a_program_without_a_handler_and_its_file_is_cleaned_up) {
  auto program = start_program("one", "dies");
  const Said said = troupe({"stop", "--json"});
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_TRUE(json::parse(said.text)["ended"].get<bool>());
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(json::parse(troupe({"status", "--json"}).text)["clusters"].size(), 0U);
  EXPECT_EQ(files(), 0U);
}

TEST_F(State, a_wrong_key_is_refused) {
  const auto program = start_program("one");
  const auto path = std::filesystem::directory_iterator(clusters())->path();
  auto file = ClusterFile::parse(text_of(path));
  ASSERT_TRUE(file.ok());
  file->key.bytes[0] ^= std::byte{1};
  std::ofstream(path) << file->text();
  const auto status = json::parse(troupe({"status", "--json"}).text)["clusters"];
  ASSERT_EQ(status.size(), 1U);
  EXPECT_FALSE(status[0]["answers"].get<bool>());
  EXPECT_EQ(troupe({"stop"}).code, 2);
}

TEST_F(State, another_user_cannot_look_into_the_folder_or_read_the_key) {
  if (!can_change_uid()) GTEST_SKIP() << "only root can act as another user";
  const auto program = start_program("one");
  struct stat info{};
  const std::string folder = clusters(), path = std::filesystem::directory_iterator(folder)->path();
  ASSERT_EQ(::stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  std::filesystem::permissions(home(), std::filesystem::perms(0755));
  EXPECT_TRUE(as_another_uid(
      [&] { return ::open(folder.c_str(), O_RDONLY) < 0 && ::open(path.c_str(), O_RDONLY) < 0; }));
}

TEST_F(State, a_home_that_cannot_be_written_does_not_stop_a_cluster) {
  const auto file = home() + "/file";
  std::ofstream(file) << "no folder";
  ClusterOptions options;
  options.state_folder = file + "/clusters";
  EXPECT_TRUE(Cluster::start(std::move(options)).ok());
}

}  // namespace
}  // namespace troupe::test
