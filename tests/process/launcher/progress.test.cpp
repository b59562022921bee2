// What people and programs see of a job while it runs.
#include <csignal>
#include <cstdlib>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string some_requests(int count) {
  std::string input = "no JSON\n";
  for (int i = 1; i < count; ++i) {
    input += completion(fmt::format("r{}", i), {326, 369, 524},
                        {{"max_tokens", 200}, {"ignore_eos", true}});
  }
  return input;
}

TEST(JsonProgress, is_a_json_object_a_line_from_the_beginning_to_the_end) {
  const LauncherJob job;
  job.write_input(some_requests(24));
  const Ended ended = job.run({"--json-progress", "--set", "engine.max_num_seqs=4"});
  ASSERT_EQ(ended.code, 1) << ended.describe();
  std::istringstream lines(ended.err);
  std::vector<json> progress;
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line, nullptr, false);
    ASSERT_TRUE(object.is_object()) << line;
    if (object.at("type") == "progress") progress.push_back(object);
  }
  ASSERT_GE(progress.size(), 2U) << ended.err;
  EXPECT_NE(progress.front().at("state"), "finished");
  const json& last = progress.back();
  EXPECT_EQ(last.at("state"), "finished") << last;
  EXPECT_EQ(last.at("outcome"), "finished with error lines");
  EXPECT_EQ(last.at("done"), 24);
  EXPECT_EQ(last.at("total"), 24);
  EXPECT_EQ(last.at("errors"), 1);
  EXPECT_EQ(last.at("output_tokens"), 23 * 200);
  EXPECT_TRUE(last.at("remaining_seconds").is_null()) << last;
  for (std::size_t i = 1; i < progress.size(); ++i) {
    EXPECT_GE(progress[i].at("done"), progress[i - 1].at("done"));
    EXPECT_GE(progress[i].at("seconds"), progress[i - 1].at("seconds"));
  }
}

/// The outcome in the last JSON object on stderr, which must be the final one.
std::string last_outcome(const Ended& ended) {
  const auto begin = ended.err.rfind("\n{");
  const json last =
      json::parse(ended.err.substr(begin == ended.err.npos ? 0 : begin), nullptr, false);
  return last.is_object() && last.value("state", "") == "finished" ? last.value("outcome", "") : "";
}

TEST(JsonProgress, tells_of_every_end) {
  const std::vector<std::string> arguments = {"--json-progress", "--set", "engine.max_num_seqs=4"};
  const auto limit = std::chrono::seconds(30 * test::time_scale);
  {
    const LauncherJob job;
    job.write_input(some_requests(20'000));
    const auto launcher = job.start(arguments);
    ASSERT_TRUE(launcher->wait_for_lines(job.output(), 3, limit));
    launcher->signal_group(SIGINT);
    ASSERT_TRUE(launcher->wait_for_stderr("Ctrl-C again to stop at once", limit));
    launcher->signal_group(SIGINT);
    const Ended ended = launcher->wait(limit);
    // The running requests may have finished before the second signal.
    EXPECT_EQ(last_outcome(ended), ended.code == 130 ? "interrupted" : "drained")
        << ended.describe();
  }
  {
    const LauncherJob job;
    job.write_input(some_requests(20'000));
    const auto launcher = job.start(arguments);
    ASSERT_TRUE(launcher->wait_for_file(job.folder() / "out.jsonl.job/launcher.log", limit));
    launcher->signal_group(SIGINT);
    const Ended ended = launcher->wait(limit);
    EXPECT_EQ(ended.code, 4) << ended.describe();
    EXPECT_EQ(last_outcome(ended), "drained") << ended.describe();
  }
  {
    const LauncherJob job;
    job.write_input("no JSON\n" + some_requests(20'000));
    std::vector<std::string> strict = arguments;
    strict.insert(strict.end(), {"--set", "job.max_failures=1"});
    const Ended ended = job.run(strict);
    EXPECT_EQ(ended.code, 3) << ended.describe();
    EXPECT_EQ(last_outcome(ended), "failed") << ended.describe();
  }
}

TEST(JsonProgress, and_quiet_exclude_each_other) {
  const LauncherJob job;
  const Ended ended = job.run({"--json-progress", "--quiet"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("not both"));
}

/// Runs a job with stderr on a terminal `columns` wide, with TERM set to `kind`, and returns what
/// it wrote there.
std::string on_a_terminal(const LauncherJob& job, unsigned short columns, const std::string& kind,
                          int& status) {
  const int reader = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_EQ(::grantpt(reader), 0);
  EXPECT_EQ(::unlockpt(reader), 0);
  const int writer = ::open(::ptsname(reader), O_RDWR | O_NOCTTY | O_CLOEXEC);
  winsize size{};
  size.ws_col = columns;
  size.ws_row = 24;
  ::ioctl(writer, TIOCSWINSZ, &size);
  const std::string program = launcher_file();
  std::vector<std::string> words = {program, "--config", "cluster.yaml", "--set",
                                    "engine.max_num_seqs=4"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::string term = "TERM=" + kind;
  std::vector<char*> environment = {term.data()};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("TERM=")) environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, writer, STDERR_FILENO);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addchdir_np(&files, job.folder().c_str());
  pid_t pid = -1;
  EXPECT_EQ(::posix_spawn(&pid, program.c_str(), &files, nullptr, argv.data(), environment.data()),
            0);
  posix_spawn_file_actions_destroy(&files);
  ::close(writer);
  std::string text;
  char buffer[4096];
  pollfd descriptor{reader, POLLIN, 0};
  const auto limit = std::chrono::milliseconds(run_limit).count();
  // A terminal whose other side is closed reads as an error.
  while (::poll(&descriptor, 1, static_cast<int>(limit)) > 0) {
    const ssize_t got = ::read(reader, buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(reader);
  ::waitpid(pid, &status, 0);
  return text;
}

TEST(LiveView, stays_within_the_terminal_and_leaves_the_summary_alone) {
  for (const unsigned short columns : {80, 40, 120}) {
    SCOPED_TRACE(columns);
    const LauncherJob job;
    job.write_input(some_requests(30));
    int status = -1;
    const std::string text = on_a_terminal(job, columns, "xterm", status);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << text;
    const auto summary = text.find("29 answers and 1 error line in ");
    ASSERT_NE(summary, text.npos) << text;
    EXPECT_TRUE(text.substr(0, summary).ends_with("\x1b[J")) << "live lines were left: " << text;
    EXPECT_EQ(text.substr(summary).find('\x1b'), std::string::npos) << text;
    const std::string live = text.substr(0, summary);
    EXPECT_THAT(live, HasSubstr("/30 ("));
    EXPECT_THAT(live, HasSubstr(" running  "));
    EXPECT_EQ(live.find("[#") != live.npos, columns >= 100) << live;
    std::istringstream lines(live);
    for (std::string line; std::getline(lines, line);) {
      const auto escape = line.rfind("\x1b[J");
      const std::string shown = escape == line.npos ? line : line.substr(escape + 3);
      EXPECT_LE(shown.size(), columns) << shown;  // including the carriage return
    }
  }
}

TEST(LiveView, is_plain_lines_where_the_cursor_does_not_move) {
  const LauncherJob job;
  job.write_input(some_requests(30));
  int status = -1;
  const std::string text = on_a_terminal(job, 80, "dumb", status);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << text;
  EXPECT_THAT(text, HasSubstr("29 answers and 1 error line in "));
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
}

}  // namespace
}  // namespace troupe::launcher_test
