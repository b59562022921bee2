#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "runtime/process/unique_fd.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/regex.hpp"
#include "tests/support/sorted_lines.hpp"

// The same command resumes a job that broke off.

namespace troupe::launcher_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr milliseconds event_limit = seconds(30) * test::time_scale;
constexpr milliseconds end_limit = seconds(30) * test::time_scale;
constexpr milliseconds soon = seconds(5) * test::time_scale;
constexpr int requests = 120;

/// Answers of different lengths, some of them sampled, and three kinds of bad lines.
std::string mixed_input() {
  std::string input;
  for (int i = 0; i < requests; ++i) {
    input += completion(fmt::format("r{:03}", i), {326, 369, 524 + i},
                        {{"max_tokens", 8 + i % 50}, {"ignore_eos", true}, {"temperature", i % 2}});
    if (i == 10) input += "{broken\n";
    if (i == 20) input += completion("r003", {1, 2}, {{"max_tokens", 2}});
    if (i == 30) input += completion("unknown", {1, 2}, {{"max_tokns", 2}});
  }
  return input;
}
constexpr std::size_t mixed_lines = requests + 3;

/// Expects `output` to have the lines of an undisturbed run, in any order.
void expect_undisturbed(const std::string& output) {
  const LauncherJob job;
  job.write_input(mixed_input());
  EXPECT_EQ(job.run().code, 1);
  const auto expected = test::sorted_lines(golden::file_bytes(job.output()));
  const auto found = test::sorted_lines(output);
  ASSERT_EQ(expected.size(), mixed_lines);
  ASSERT_EQ(found.size(), mixed_lines);
  for (std::size_t i = 0; i < mixed_lines; ++i) ASSERT_EQ(found[i], expected[i]);
}

/// Returns the exit status of a shell command in the job's folder; $LAUNCHER is the program.
int shell(const LauncherJob& job, const std::string& command) {
  const std::string text =
      fmt::format("cd '{}' && LAUNCHER='{}' timeout {} sh -c '{}'", job.folder().string(),
                  launcher_file().string(), 60 * test::time_scale, command);
  const int status = std::system(text.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Resuming : public testing::Test {
 protected:
  void SetUp() override { job_.write_input(mixed_input()); }

  /// Runs the job with few requests at a time, and ends it after some answers.
  void break_off(int signal_number = SIGTERM, int code = 4) const {
    const auto launcher = job_.start({"--set", "engine.max_num_seqs=4"});
    ASSERT_TRUE(launcher->wait_for_lines(job_.output(), 5, event_limit))
        << launcher->wait({}).describe();
    launcher->signal(signal_number);
    const Ended ended = launcher->wait(end_limit);
    EXPECT_EQ(ended.code, code) << ended.describe();
    if (code == 4) {
      EXPECT_THAT(ended.err, HasSubstr("The same command goes on"));
    }
    EXPECT_TRUE(processes_left_in(job_.folder(), seconds(10)).empty());
    EXPECT_LT(lines(), mixed_lines) << "nothing was left to resume";
  }
  std::size_t lines() const {
    const std::string text = golden::file_bytes(job_.output());
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  std::string output() const { return golden::file_bytes(job_.output()); }

  LauncherJob job_;
};

TEST_F(Resuming, after_signals_and_kills_gives_the_bytes_of_an_undisturbed_run) {
  break_off(SIGTERM, 4);
  break_off(SIGKILL, 128 + SIGKILL);
  const std::size_t before = lines();
  std::ofstream(job_.output(), std::ios::app) << R"({"id":"batch_req_torn)";
  const Ended ended = job_.run({"--resume"});
  EXPECT_EQ(ended.code, 1) << ended.describe();
  EXPECT_THAT(ended.err,
              HasSubstr(fmt::format("{} of {} lines were answered before", before, mixed_lines)));
  EXPECT_EQ(lines(), mixed_lines);
  expect_undisturbed(output());

  const std::string complete = output();
  const Ended again = job_.run();
  EXPECT_EQ(again.code, 1) << again.describe();
  EXPECT_EQ(output(), complete);
  EXPECT_FALSE(std::filesystem::exists(job_.folder() / "out.jsonl.job/executor.log"))
      << "a complete job loads no model";
}

TEST_F(Resuming, may_use_another_arrangement_but_not_another_seed) {
  break_off();
  const std::string before = output();
  const Ended refused = job_.run({"--set", "job.seed=1"});
  EXPECT_EQ(refused.code, 2) << refused.describe();
  EXPECT_THAT(refused.err, HasSubstr("job.seed was 0, is 1"));
  EXPECT_THAT(refused.err, HasSubstr("--resume=force"));
  EXPECT_EQ(output(), before);
  EXPECT_EQ(job_.run({"--set", "parallel.tensor_parallel_size=2"}).code, 1);
  expect_undisturbed(output());
}

TEST_F(Resuming, tells_templates_the_date_at_which_the_job_was_begun) {
  const golden::TemporaryFolder models;
  const auto model = models.path() / "dated";
  std::filesystem::copy(demo_model(), model);
  // A word for each year since 2000, so that the prompt's length tells the year.
  std::ofstream(model / "chat_template.jinja")
      << "{% for year in range(strftime_now('%Y') | int - 2000) %}once {% endfor %}"
         "{{ messages[0].content }}";
  const LauncherJob job(model);
  job.write_input(chat("first", "Hello", {{"max_tokens", 1}}) +
                  chat("second", "Hello", {{"max_tokens", 1}}));
  ASSERT_EQ(job.run({"--set", "job.ordered=true"}).code, 0);
  const auto prompt_tokens = [&](const std::string& id) {
    return job.answers().at(id).body().at("usage").at("prompt_tokens").get<int>();
  };
  const int tokens_now = prompt_tokens("second");
  EXPECT_GT(tokens_now, 20);

  // As if it had been begun in September 2001 and broken off after the first answer.
  const auto fingerprint = job.folder() / "out.jsonl.job/fingerprint.json";
  const std::string begun = test::regex_replace(golden::file_bytes(fingerprint),
                                                "\"created\": ?[0-9]+", "\"created\":1000000000");
  std::ofstream(fingerprint) << begun;
  const std::string whole = golden::file_bytes(job.output());
  std::ofstream(job.output()) << whole.substr(0, whole.find('\n') + 1);
  const Ended resumed = job.run({"--set", "job.ordered=true"});
  ASSERT_EQ(resumed.code, 0) << resumed.describe();
  EXPECT_EQ(job.answers().at("second").body().at("created"), 1'000'000'000);
  EXPECT_LT(prompt_tokens("second"), tokens_now - 20);
}

TEST_F(Resuming, is_refused_for_another_input_unless_forced) {
  break_off();
  const std::size_t before = lines();
  job_.write_input(mixed_input() + completion("new", {1, 2}, {{"max_tokens", 2}}));
  const Ended refused = job_.run();
  EXPECT_EQ(refused.code, 2) << refused.describe();
  EXPECT_THAT(refused.err, HasSubstr("the input was"));
  EXPECT_EQ(lines(), before);
  const Ended forced = job_.run({"--resume=force"});
  EXPECT_EQ(forced.code, 1) << forced.describe();
  EXPECT_EQ(lines(), mixed_lines + 1);
}

TEST_F(Resuming, works_from_and_to_packed_files) {
  ASSERT_EQ(shell(job_, "gzip in.jsonl && mv in.jsonl.gz in.jsonl"), 0);
  for (const std::string packing : {"gz", "zst"}) {
    const std::string name = "out." + packing;
    const std::vector<std::string> arguments = {"--output", name};
    EXPECT_EQ(job_.run(arguments).code, 1);
    const std::string whole = golden::file_bytes(job_.folder() / name);
    std::ofstream(job_.folder() / name, std::ios::binary | std::ios::app)
        << whole.substr(0, 40);  // the beginning of one member; there may be several
    const Ended again = job_.run(arguments);
    EXPECT_EQ(again.code, 1) << again.describe();
    EXPECT_EQ(golden::file_bytes(job_.folder() / name), whole) << "the torn member is cut off";
  }
  ASSERT_EQ(shell(job_, "zcat out.gz > out.jsonl"), 0);
  expect_undisturbed(output());
}

TEST_F(Resuming, a_packed_input_that_is_cut_short_is_refused_before_anything_starts) {
  ASSERT_EQ(shell(job_, "gzip -c in.jsonl > whole && head -c 500 whole > in.jsonl"), 0);
  const Ended ended = job_.run();
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("in.jsonl ends in the middle of packed data"));
  EXPECT_FALSE(std::filesystem::exists(job_.output()));
}

TEST_F(Resuming, goes_on_after_a_full_disk) {
  const auto launcher = job_.start({"--set", "engine.max_num_seqs=4"});
  ASSERT_TRUE(launcher->wait_for_lines(job_.output(), 5, event_limit))
      << launcher->wait({}).describe();
  // A limit on the size of the driver's files simulates a full disk.
  const rlim_t room = std::filesystem::file_size(job_.output()) + 5000;
  const rlimit limit{room, room};
  ASSERT_EQ(::prlimit(launcher->pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  const Ended full = launcher->wait(end_limit);
  EXPECT_EQ(full.code, 3) << full.describe();
  EXPECT_THAT(full.err, HasSubstr("cannot write the output"));
  EXPECT_THAT(full.err, HasSubstr("The same command goes on"));
  EXPECT_EQ(output().back(), '\n') << "a torn line is cut off again";
  EXPECT_EQ(job_.run().code, 1);
  expect_undisturbed(output());
}

TEST_F(Resuming, of_pipes_is_impossible_but_running_is_not) {
  EXPECT_EQ(shell(job_,
                  "cat in.jsonl | $LAUNCHER --config cluster.yaml --input - --output - "
                  "> out.jsonl 2> err"),
            1);
  EXPECT_EQ(lines(), mixed_lines);
  EXPECT_THAT(golden::file_bytes(job_.folder() / "err"), HasSubstr("error lines"));
  std::filesystem::remove(job_.output());
  for (const char* pipe : {"--input", "--output"}) {
    const Ended ended = job_.run({pipe, "-", "--resume"});
    EXPECT_EQ(ended.code, 2) << ended.describe();
    EXPECT_THAT(ended.err, HasSubstr("cannot be gone on with"));
  }
  EXPECT_EQ(job_.run({"--overwrite", "--resume"}).code, 2);
  EXPECT_FALSE(std::filesystem::exists(job_.output()));
}

TEST_F(Resuming, a_silent_pipe_does_not_hold_up_signals_or_answers) {
  const auto fifo = job_.folder() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto launcher = job_.start({"--input", "fifo"});
  const UniqueFd writer(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  const std::string line = completion("only", {1, 2}, {{"max_tokens", 3}});
  ASSERT_EQ(::write(writer.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  ASSERT_TRUE(launcher->wait_for_lines(job_.output(), 1, event_limit))
      << launcher->wait({}).describe();
  launcher->signal(SIGINT);
  const Ended ended = launcher->wait(soon);
  EXPECT_EQ(ended.code, 4) << ended.describe();
  EXPECT_TRUE(ended.in_time);
  EXPECT_TRUE(job_.answers().at("only").ok());
}

TEST_F(Resuming, a_pipe_of_packed_data_that_breaks_off_has_answers_to_what_came_before) {
  const int code =
      shell(job_,
            "gzip -c in.jsonl > whole && head -c $(($(wc -c < whole) / 2)) whole > cut; "
            "zcat cut 2> /dev/null | wc -l > came; "
            "cat cut | $LAUNCHER --config cluster.yaml --input - 2> err");
  const std::string err = golden::file_bytes(job_.folder() / "err");
  EXPECT_EQ(code, 3) << err;
  EXPECT_THAT(err, HasSubstr("standard input ends in the middle of packed data"));
  EXPECT_THAT(err, HasSubstr("cannot be gone on with"));
  const auto came = std::stoul(golden::file_bytes(job_.folder() / "came"));
  EXPECT_GT(came, 10U);
  EXPECT_EQ(lines(), came);
}

TEST_F(Resuming, a_pipe_that_nobody_reads_is_given_up_at_the_first_signal) {
  ASSERT_EQ(::mkfifo((job_.folder() / "fifo").c_str(), 0600), 0);
  const auto launcher = job_.start({"--output", "fifo"});
  const auto log = job_.folder() / "fifo.job/launcher.log";
  ASSERT_TRUE(launcher->wait_for_text(log, "KV blocks", event_limit))
      << launcher->wait({}).describe();
  launcher->signal(SIGINT);
  const Ended ended = launcher->wait(soon);
  EXPECT_EQ(ended.code, 4) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("nobody reads the output fifo"));
}

TEST_F(Resuming, a_reader_of_the_last_words_who_does_not_read_does_not_hold_up_the_end) {
  const auto fifo = job_.folder() / "full";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const UniqueFd stalled(::open(fifo.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  const std::string zeros(4096, '0');
  while (::write(stalled.get(), zeros.data(), zeros.size()) > 0) {
  }
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(shell(job_, "$LAUNCHER --config cluster.yaml --set job.max_failures=0 2> full"), 3);
  EXPECT_THAT(golden::file_bytes(job_.folder() / "out.jsonl.job/launcher.log"),
              HasSubstr("error lines are more than job.max_failures"));
}

TEST_F(Resuming, a_reader_of_the_output_who_goes_away_ends_the_job) {
  const int code = shell(job_,
                         "$LAUNCHER --config cluster.yaml --output - 2> err | head -n 3 > first; "
                         "grep -q \"Broken pipe\" err && grep -q \"cannot be gone on with\" err");
  EXPECT_EQ(code, 0) << golden::file_bytes(job_.folder() / "err");
  EXPECT_TRUE(processes_left_in(job_.folder(), soon).empty());
}

TEST_F(Resuming, what_runs_longer_than_the_grace_time_is_given_up_and_not_written) {
  std::string input = completion("short", {1, 2}, {{"max_tokens", 1}});
  for (int i = 0; i < 16; ++i) {
    input += completion(fmt::format("long{}", i), {1, 2, 3 + i},
                        {{"max_tokens", 2000}, {"ignore_eos", true}});
  }
  job_.write_input(input);
  const auto launcher = job_.start({"--set", "job.grace_seconds=0.05"});
  ASSERT_TRUE(launcher->wait_for_lines(job_.output(), 1, event_limit))
      << launcher->wait({}).describe();
  launcher->signal(SIGTERM);
  const Ended ended = launcher->wait(soon);
  EXPECT_EQ(ended.code, 4) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("still ran after job.grace_seconds (0.05)"));
  EXPECT_TRUE(job_.answers().at("short").ok());
  EXPECT_LT(lines(), 17U);
}

TEST_F(Resuming, too_many_failures_stop_the_job_and_more_of_them_may_be_allowed) {
  const Ended ended = job_.run({"--set", "job.max_failures=2"});
  EXPECT_EQ(ended.code, 3) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("3 error lines are more than job.max_failures (2) allows"));
  const Ended same = job_.run({"--set", "job.max_failures=2"});
  EXPECT_EQ(same.code, 3) << same.describe();
  EXPECT_FALSE(std::filesystem::exists(job_.folder() / "out.jsonl.job/executor.log"))
      << "what is to stop at once loads no model";
  const Ended again = job_.run({"--set", "job.max_failures=3"});
  EXPECT_EQ(again.code, 1) << again.describe();
  expect_undisturbed(output());
}

TEST_F(Resuming, a_job_that_cannot_start_leaves_no_output_and_an_old_one_alone) {
  const std::vector<std::string> impossible = {"--set", "engine.kv_cache_blocks=1000000000"};
  const Ended ended = job_.run(impossible);
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_FALSE(std::filesystem::exists(job_.output()));
  std::ofstream(job_.output()) << "precious\n";
  EXPECT_EQ(job_.run({"--overwrite", impossible[0], impossible[1]}).code, 2);
  EXPECT_EQ(output(), "precious\n");
}

}  // namespace
}  // namespace troupe::launcher_test
