#include <gmock/gmock.h>

#include "tests/process/runtime/state/state_fixture.hpp"

namespace troupe::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A program whose actors' logs the test writes to as well.
class StateLogs : public State {
 protected:
  StateLogs() : program_(start_program("one")) {}

  ChildProcess& program() { return program_; }
  std::string log(const std::string& actor) const { return home() + "/logs-one/" + actor + ".log"; }
  void append(const std::string& actor, const std::string& text) const {
    std::ofstream(log(actor), std::ios::app) << text;
  }
  void write(const std::string& actor, const std::string& text) const {
    std::ofstream(log(actor)) << text;
  }
  /// `troupe logs WORDS`, which prints into printed().
  ChildProcess follow(std::vector<std::string> words, const std::string& program = TROUPE_TOOL) {
    words.insert(words.begin(), {program, "logs"});
    return start(with_signals(words), "env", printed());
  }
  std::string printed() const { return home() + "/followed"; }

 private:
  ChildProcess program_;
};

TEST_F(StateLogs, following_prints_new_lines_and_ends_with_the_cluster) {
  write("first", "old\nlast old\n");
  auto follower = follow({"first", "-n", "1", "--follow"});
  wait_for_text(printed(), "last old\n");
  append("first", "new\n");
  wait_for_text(printed(), "new\n");
  EXPECT_FALSE(follower.wait(0ms));
  EXPECT_EQ(troupe({"stop"}).code, 0);
  const auto ended = follower.wait(limit);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->code, 0);
  EXPECT_THAT(text_of(printed()), HasSubstr("the cluster has ended"));
  EXPECT_THAT(text_of(printed()), Not(HasSubstr("\nold")));
}

TEST_F(StateLogs, the_last_lines_of_a_driver_that_is_killed_are_printed) {
  write("first", "begin\n");
  auto follower = follow({"first", "-f"});
  wait_for_text(printed(), "begin\n");
  append("first", "last words\n");  // long before the follower asks again
  program().signal(SIGKILL);
  const auto ended = follower.wait(limit);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->code, 0);
  EXPECT_THAT(text_of(printed()), HasSubstr("begin\nlast words\n"));
}

TEST_F(StateLogs, ctrl_c_ends_a_follower_at_once) {
  for (const std::string tool : {TROUPE_TOOL, TROUPE_LAUNCHER}) {
    write("first", "begin of " + tool + "\n");
    auto follower = follow({"first", "-f"}, tool);
    wait_for_text(printed(), "begin of " + tool);
    const auto began = std::chrono::steady_clock::now();
    follower.signal(SIGINT);
    const auto ended = follower.wait(limit);
    ASSERT_TRUE(ended);
    EXPECT_TRUE(ended->signalled);
    EXPECT_EQ(ended->code, SIGINT);
    EXPECT_LT(std::chrono::steady_clock::now() - began, 1s);
  }
}

TEST_F(StateLogs, a_log_that_is_cut_or_replaced_is_followed_from_its_new_beginning) {
  write("first", "a first line that is longer than what comes\n");
  auto follower = follow({"first", "-f"});
  wait_for_text(printed(), "what comes\n");
  std::filesystem::resize_file(log("first"), 0);
  append("first", "after the cut\n");
  wait_for_text(printed(), "after the cut\n");
  std::filesystem::rename(log("first"), log("first") + ".1");
  wait_for_text(printed(), "after the cut\n");
  write("first", "in the new file, which is longer than the old one at this time\n");
  wait_for_text(printed(), "in the new file");
  follower.signal(SIGKILL);
  (void)follower.wait(limit);
  const std::string text = text_of(printed());
  EXPECT_THAT(text, HasSubstr("after the cut\nin the new file, which"));
}

TEST_F(StateLogs, a_log_that_is_not_there_is_refused_or_waited_for) {
  std::filesystem::remove(log("first"));
  const Said said = troupe({"logs", "first"});
  EXPECT_EQ(said.code, 2);
  EXPECT_THAT(said.text, HasSubstr("is not there (yet)"));
  auto follower = follow({"first", "second", "-f"});
  append("second", "meanwhile\n");
  wait_for_text(printed(), "second: meanwhile\n");
  write("first", "it has come\n");
  wait_for_text(printed(), "first: it has come\n");
}

TEST_F(StateLogs, lines_of_several_logs_have_their_names_before_them) {
  write("first", "1\n2\n3");  // the last line lacks its end
  write("second", "a\n\nb\n");
  const Said plain = troupe({"logs", "first", "second", "-n", "2"});
  EXPECT_EQ(plain.code, 0);
  EXPECT_EQ(plain.text, "first: 2\nsecond: \nsecond: b\nfirst: 3\n");
  const Said lines = troupe({"logs", "first", "second", "--json"});
  EXPECT_EQ(lines.code, 0);
  std::istringstream text(lines.text);
  std::vector<std::string> of_first;
  for (std::string line; std::getline(text, line);) {
    const auto parsed = json::parse(line);
    if (parsed["log"] != "first") continue;
    EXPECT_EQ(parsed["path"], log("first"));
    of_first.push_back(parsed["line"]);
  }
  EXPECT_THAT(of_first, testing::ElementsAre("1", "2", "3"));
}

TEST_F(StateLogs, the_last_lines_are_found_over_the_borders_of_pieces) {
  const std::string wide(200'000, 'x');  // a piece is 256 KiB
  write("first", "0\n" + wide + "1\n" + wide + "2\n" + wide + "3\n");
  EXPECT_EQ(troupe({"logs", "first", "-n", "2"}).text, wide + "2\n" + wide + "3\n");
  EXPECT_EQ(troupe({"logs", "first", "-n", "0"}).text, "");
  EXPECT_EQ(troupe({"logs", "first", "-n", "9"}).text,
            "0\n" + wide + "1\n" + wide + "2\n" + wide + "3\n");
}

TEST_F(StateLogs, an_actor_that_there_is_not_is_refused_also_among_others) {
  const Said said = troupe({"logs", "first", "nobody", "-f"});
  EXPECT_EQ(said.code, 2);
  EXPECT_THAT(said.text, HasSubstr("'nobody'"));
}

}  // namespace
}  // namespace troupe::test
