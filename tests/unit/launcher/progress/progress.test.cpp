#include <cstdlib>
#include <functional>
#include <future>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "launcher/progress/progress_printer.hpp"
#include "launcher/progress/progress_view.hpp"

namespace troupe {
namespace {

ProgressState state_at(double seconds, std::uint64_t done, std::uint64_t output_tokens) {
  ProgressState state;
  state.seconds = seconds;
  state.total = 1000;
  state.done = done;
  state.output_tokens = output_tokens;
  state.finished_tokens = output_tokens;
  state.prompt_tokens = 2 * output_tokens;
  state.running = 12;
  state.waiting = 34;
  state.kv_use = 0.56;
  return state;
}

TEST(ProgressView, shows_everything_on_80_columns) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(10, 250, 12345);
  state.errors = 1;
  view.update(state);
  const auto lines = view.live_lines(80);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], " 250/1000 (25%)   30 s left  1 error  10 s so far");
  EXPECT_EQ(lines[1], " 1.2k tok/s    12 running    34 waiting  KV  56%  prompts  2.5k tok/s");
}

TEST(ProgressView, keeps_numbers_in_their_places_on_80_columns) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  std::string before;
  for (int second = 1; second <= 50; ++second) {
    const auto done = 19 * static_cast<std::uint64_t>(second);
    ProgressState state = state_at(second, done, done * 400);
    state.running = done / 10;
    state.waiting = done;
    state.kv_use = second / 50.0;
    view.update(state);
    const std::string line = view.live_lines(80)[1];
    if (!before.empty()) {
      EXPECT_EQ(line.find("running"), before.find("running")) << line;
      EXPECT_EQ(line.find("prompts"), before.find("prompts")) << line;
      EXPECT_EQ(line.size(), before.size()) << line;
    }
    before = line;
  }
}

TEST(ProgressView, leaves_out_the_least_important_on_40_columns) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(10, 250, 12345);
  state.errors = 12;
  view.update(state);
  const auto lines = view.live_lines(40);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "250/1000 (25%)  30 s left  12 errors");
  EXPECT_EQ(lines[1], "1.2k tok/s  12 running  34 waiting");
}

TEST(ProgressView, shows_bars_of_the_job_and_of_each_rank_from_100_columns_on) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(10, 250, 12345);
  state.rank_busy = {0.84, 1.7, 0, 0.46};
  view.update(state);
  EXPECT_EQ(view.live_lines(99).size(), 2U);
  const auto lines = view.live_lines(100);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], "[########----------------------]   250/1000 (25%)   30 s left  10 s so far");
  EXPECT_EQ(lines[2],
            "rank 0   ########--  84%   rank 1   ########## 100%   rank 2   ----------   0%");
  EXPECT_EQ(lines[3], "rank 3   #####-----  46%");
}

TEST(ProgressView, sums_many_ranks_up) {
  ProgressView view;
  ProgressState state = state_at(0, 0, 0);
  state.rank_busy.assign(64, 0.5);
  state.rank_busy[7] = 0.25;
  view.update(state);
  const auto lines = view.live_lines(120);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2], "64 ranks  #####----- 50% busy on average, 25% to 50%");
}

TEST(ProgressView, tells_no_time_left_while_it_drains) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(10, 250, 12345);
  view.update(state);
  EXPECT_NE(view.live_lines(80)[0].find("30 s left"), std::string::npos);
  state.draining = true;
  view.update(state);
  EXPECT_EQ(view.live_lines(80)[0].find("left"), std::string::npos) << view.live_lines(80)[0];
  EXPECT_TRUE(nlohmann::json::parse(view.json_line()).at("remaining_seconds").is_null());
}

TEST(ProgressView, counts_tokens_of_running_requests_before_their_lines_are_done) {
  // 1000 lines of 100 tokens, 100 at a time, at 1000 tokens a second.
  ProgressView view;
  ProgressState state = state_at(0, 0, 0);
  state.running = 100;
  view.update(state);
  state.seconds = 10;
  state.done = 5;  // the first hundred are about to end
  state.output_tokens = 10'000;
  state.finished_tokens = 500;
  state.running = 95;
  view.update(state);
  EXPECT_TRUE(view.log_line().ends_with(", 1:30 left")) << view.log_line();
}

TEST(ProgressView, does_not_take_the_first_short_answers_for_all) {
  ProgressView view;
  ProgressState state = state_at(0, 0, 0);
  view.update(state);
  state.seconds = 10;
  state.done = 10;
  state.finished_tokens = 20;  // two tokens each, while running ones have a hundred
  state.running = 100;
  state.output_tokens = 10'020;
  view.update(state);
  EXPECT_TRUE(view.log_line().ends_with(", 1:29 left")) << view.log_line();
}

TEST(ProgressView, does_not_count_what_was_done_before_it_began) {
  ProgressView view;
  view.update(state_at(0, 600, 0));
  view.update(state_at(10, 700, 1000));
  EXPECT_TRUE(view.log_line().ends_with(", 30 s left")) << view.log_line();
}

TEST(ProgressView, tells_programs_everything_on_a_line) {
  ProgressView view;
  ProgressState loading = state_at(0.5, 0, 0);
  loading.phase = "loading \"a\nb\xff\"";
  loading.total = 0;
  view.update(loading);
  auto line = nlohmann::json::parse(view.json_line());
  EXPECT_EQ(line.at("type"), "progress");
  EXPECT_EQ(line.at("state"), "loading");
  EXPECT_TRUE(line.at("total").is_null()) << line;
  EXPECT_TRUE(line.at("remaining_seconds").is_null()) << line;
  view.update(state_at(1, 0, 0));
  ProgressState state = state_at(11, 250, 12345);
  state.rank_busy = {0.5, 0.25};
  view.update(state);
  line = nlohmann::json::parse(view.json_line());
  const nlohmann::json expected = {{"type", "progress"},
                                   {"state", "running"},
                                   {"seconds", 11.0},
                                   {"done", 250},
                                   {"total", 1000},
                                   {"errors", 0},
                                   {"remaining_seconds", 30.0},
                                   {"running", 12},
                                   {"waiting", 34},
                                   {"kv_use", 0.56},
                                   {"output_tokens", 12345},
                                   {"output_tokens_per_second", 1234.5},
                                   {"prompt_tokens", 24690},
                                   {"prompt_tokens_per_second", 2469.0},
                                   {"prefix_tokens", 0},
                                   {"preemptions", 0},
                                   {"swaps", 0},
                                   {"rank_busy", {0.5, 0.25}}};
  EXPECT_EQ(line, expected);
  line = nlohmann::json::parse(view.json_line("drained"));
  EXPECT_EQ(line.at("state"), "finished");
  EXPECT_EQ(line.at("outcome"), "drained");
  EXPECT_EQ(json_message("a \"b\"\n"), R"({"type":"message","text":"a \"b\"\n"})");
}

TEST(ProgressView, never_reaches_the_last_column) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(1e6, 123456789, 1234567890123);
  state.rank_busy.assign(9, 0.5);
  state.total = 987654321;
  state.errors = 123456;
  view.update(state);
  for (int columns = 0; columns < 200; ++columns) {
    for (const std::string& line : view.live_lines(columns)) {
      EXPECT_LE(static_cast<int>(line.size()), std::max(1, columns - 1)) << line;
    }
  }
}

TEST(ProgressView, takes_the_speed_of_the_last_seconds_and_the_remaining_time_of_the_whole_job) {
  ProgressView view;
  for (int second = 0; second <= 100; ++second) {
    const std::uint64_t tokens = second <= 90 ? 0 : static_cast<std::uint64_t>(second - 90) * 100;
    view.update(state_at(second, static_cast<std::uint64_t>(second), tokens));
  }
  EXPECT_TRUE(view.log_line().starts_with("100/1000 (10%), 0 errors, 100 output tok/s, "))
      << view.log_line();
  EXPECT_TRUE(view.log_line().ends_with(", 15:00 left")) << view.log_line();
}

TEST(ProgressView, does_not_count_loading_as_work) {
  ProgressView view;
  ProgressState loading = state_at(0, 0, 0);
  loading.phase = "loading fable-moe";
  view.update(loading);
  loading.seconds = 60;
  view.update(loading);
  EXPECT_EQ(view.live_lines(80), std::vector<std::string>{"loading fable-moe  1:00"});
  EXPECT_EQ(view.live_lines(10), std::vector<std::string>{"loading f"});
  EXPECT_EQ(view.log_line(), "loading fable-moe, 1:00");
  view.update(state_at(60, 0, 0));
  view.update(state_at(70, 500, 1000));
  EXPECT_TRUE(view.log_line().ends_with(", 10 s left")) << view.log_line();
}

TEST(ProgressView, sums_up) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(20, 1000, 4000);
  state.errors = 2;
  view.update(state);
  EXPECT_EQ(view.summary(),
            "998 answers and 2 error lines in 20 s; 4000 output tokens at 200 tok/s, 8000 prompt "
            "tokens at 400 tok/s");
}

TEST(ProgressView, does_not_count_the_wait_for_input_as_work) {
  ProgressView view;
  view.update(state_at(0, 0, 0));
  ProgressState state = state_at(20, 1000, 4000);
  state.input_wait_seconds = 12;
  view.update(state);
  EXPECT_EQ(view.summary(),
            "1000 answers in 20 s (12 s waiting for input); 4000 output tokens at 500 tok/s, 8000 "
            "prompt tokens at 1.0k tok/s");
}

TEST(ProgressView, tells_tenths_of_a_second_in_the_summary_of_a_brief_job) {
  ProgressView view;
  view.update(state_at(0.5, 3, 0));
  EXPECT_EQ(view.summary(), "3 answers of 1000 lines in 0.5 s");
}

TEST(ProgressView, tells_in_the_summary_what_was_answered_before) {
  ProgressView view;
  ProgressState state = state_at(0.5, 3, 0);
  state.before = 2;
  view.update(state);
  EXPECT_EQ(view.summary(), "3 answers of 1000 lines, 2 of them before this run, in 0.5 s");
}

TEST(ProgressView, survives_an_unknown_total_nonsense_and_time_going_back) {
  ProgressView view;
  EXPECT_EQ(view.live_lines(80).size(), 2U);
  EXPECT_FALSE(view.log_line().empty());
  EXPECT_EQ(view.summary(), "0 answers in 0 s");
  ProgressState state = state_at(5, 7, 100);
  state.total = 0;
  view.update(state);
  state.seconds = 3;
  state.done = 1;
  view.update(state);
  state.seconds = 6;
  state.done = 8;
  state.errors = 20;
  state.output_tokens = 0;
  state.kv_use = 7;
  view.update(state);
  EXPECT_TRUE(view.live_lines(80)[0].starts_with("8 done")) << view.live_lines(80)[0];
  EXPECT_NE(view.live_lines(80)[1].find("KV 100%"), std::string::npos);
  EXPECT_FALSE(view.summary().empty());
}

TEST(Format, writes_durations_and_counts_as_people_do) {
  EXPECT_EQ(format_duration(-1), "0 s");
  EXPECT_EQ(format_duration(5.4), "5 s");
  EXPECT_EQ(format_duration(65), "1:05");
  EXPECT_EQ(format_duration(3700), "1:01:40");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(999.9), "1.0k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(4200000), "4.2M");
  EXPECT_EQ(format_count(3e9), "3.0G");
}

/// A pseudo-terminal 80 columns wide (or a pipe) whose output can be read back.
class Channel {
 public:
  explicit Channel(bool terminal) {
    if (!terminal) {
      int ends[2];
      if (::pipe(ends) == 0) reader_ = ends[0], writer_ = ends[1];
      return;
    }
    reader_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (reader_ < 0 || ::grantpt(reader_) != 0 || ::unlockpt(reader_) != 0) return;
    writer_ = ::open(::ptsname(reader_), O_RDWR | O_NOCTTY);
    resize(80);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    if (reader_ >= 0) ::close(reader_);
    if (writer_ >= 0) ::close(writer_);
  }

  int writer() const { return writer_; }

  void resize(unsigned short columns) const {
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    ::ioctl(writer_, TIOCSWINSZ, &size);
  }

  std::string read_all() const {
    std::string text;
    char buffer[4096];
    pollfd descriptor{reader_, POLLIN, 0};
    while (::poll(&descriptor, 1, 20) > 0 && (descriptor.revents & POLLIN) != 0) {
      const ssize_t count = ::read(reader_, buffer, sizeof(buffer));
      if (count <= 0) break;
      text.append(buffer, static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  int reader_ = -1;
  int writer_ = -1;
};

std::size_t count(const std::string& text, std::string_view what) {
  std::size_t found = 0;
  for (auto at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++found;
  return found;
}

TEST(ProgressPrinter, redraws_a_terminal_four_times_a_second_and_ends_with_the_summary) {
  const Channel channel(true);
  ASSERT_GE(channel.writer(), 0);
  {
    ProgressPrinter printer(channel.writer(), ProgressPrinter::Mode::terminal);
    for (int i = 0; i <= 100; ++i) printer.update(state_at(i * 0.01, 1, 1));
    const std::string drawn = channel.read_all();
    EXPECT_EQ(count(drawn, "1/1000"), 5U) << drawn;  // at 0, 0.25, 0.5, 0.75 and 1 s
    EXPECT_EQ(count(drawn, "\x1b[2A\x1b[J"), 4U) << drawn;
    printer.print("a worker says hello");
    printer.finish(state_at(1, 1, 1));
  }
  const std::string end = channel.read_all();
  EXPECT_NE(end.find("a worker says hello\r\n"), std::string::npos) << end;
  EXPECT_TRUE(end.ends_with("prompt tokens at\r\n2 tok/s\r\n")) << end;
}

TEST(ProgressPrinter, takes_the_width_that_the_terminal_has_at_the_moment) {
  const Channel channel(true);
  ASSERT_GE(channel.writer(), 0);
  ProgressPrinter printer(channel.writer(), ProgressPrinter::Mode::terminal);
  printer.update(state_at(0, 250, 0));
  EXPECT_NE(channel.read_all().find("so far"), std::string::npos);
  channel.resize(20);
  printer.update(state_at(1, 250, 1000));
  // Lines of 27 and 70 columns now take two rows and four.
  const std::string narrow = channel.read_all();
  EXPECT_TRUE(narrow.starts_with("\r\x1b[6A\x1b[J250/1000 (25%)\r\n")) << narrow;
  EXPECT_EQ(narrow.find("so far"), std::string::npos) << narrow;
}

TEST(ProgressPrinter, writes_a_json_object_every_second_for_programs) {
  const Channel channel(false);
  ProgressPrinter printer(channel.writer(), ProgressPrinter::Mode::json);
  for (int i = 0; i <= 30; ++i) printer.update(state_at(i * 0.1, 1, 1));
  printer.print("a worker says hello");
  printer.finish(state_at(3, 1, 1));
  printer.end(state_at(3, 1, 1), "finished");
  std::istringstream lines(channel.read_all());
  std::vector<std::string> states;
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    states.push_back(object.value("state", object.at("type").get<std::string>()));
  }
  EXPECT_EQ(states, (std::vector<std::string>{"running", "running", "running", "running", "message",
                                              "finished"}));
}

TEST(ProgressPrinter, tells_what_must_be_known_in_any_mode_above_no_live_lines) {
  using Mode = ProgressPrinter::Mode;
  for (const Mode mode : {Mode::lines, Mode::json, Mode::quiet}) {
    const Channel channel(false);
    ProgressPrinter(channel.writer(), mode).tell("the disk is full");
    EXPECT_EQ(channel.read_all(), "the disk is full\n");
  }
  const Channel channel(true);
  ASSERT_GE(channel.writer(), 0);
  ProgressPrinter printer(channel.writer(), Mode::terminal);
  printer.update(state_at(0, 1, 1));
  channel.read_all();
  printer.tell("the disk is full");
  EXPECT_EQ(channel.read_all(), "\r\x1b[2A\x1b[Jthe disk is full\r\n");
}

TEST(ProgressPrinter, leaves_no_live_lines_behind_when_it_is_destroyed) {
  const Channel channel(true);
  ASSERT_GE(channel.writer(), 0);
  {
    ProgressPrinter printer(channel.writer(), ProgressPrinter::Mode::terminal);
    printer.update(state_at(0, 1, 1));
  }
  const std::string text = channel.read_all();
  EXPECT_TRUE(text.ends_with("\r\x1b[2A\x1b[J")) << text;
}

TEST(ProgressPrinter, writes_a_plain_line_every_ten_seconds_where_there_is_no_terminal) {
  const Channel channel(false);
  ProgressPrinter printer(channel.writer(), ProgressPrinter::Mode::lines);
  for (int i = 0; i <= 25; ++i) printer.update(state_at(i, 1, 1));
  printer.finish(state_at(25, 1, 1));
  const std::string text = channel.read_all();
  EXPECT_EQ(count(text, "\n"), 3U) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
}

TEST(ProgressPrinter, says_nothing_when_quiet_and_ignores_a_closed_pipe) {
  const Channel channel(false);
  ProgressPrinter quiet(channel.writer(), ProgressPrinter::Mode::quiet);
  quiet.update(state_at(20, 1, 1));
  quiet.print("hello");
  quiet.finish(state_at(20, 1, 1));
  EXPECT_EQ(channel.read_all(), "");
  ProgressPrinter closed(-1, ProgressPrinter::Mode::terminal);
  closed.update(state_at(20, 1, 1));
  closed.finish(state_at(20, 1, 1));
}

/// Writes to `fd` until it has no room; false if it always has room.
bool fill(int fd) {
  const std::string zeros(256, '0');
  for (int i = 0; i < 1 << 16; ++i) {
    pollfd descriptor{fd, POLLOUT, 0};
    if (::poll(&descriptor, 1, 0) == 0) return true;
    if (::write(fd, zeros.data(), zeros.size()) < 0) return false;
  }
  return false;
}

/// Expects `act` to return within 20 s; if not, `channel` is emptied so that it ends.
void expect_return(const Channel& channel, const std::function<void()>& act) {
  auto done = std::async(std::launch::async, act);
  const bool returned = done.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  EXPECT_TRUE(returned) << "it waits for whoever reads";
  if (!returned) channel.read_all();
}

TEST(ProgressPrinter, does_not_wait_for_a_reader_who_does_not_read) {
  for (const auto mode : {ProgressPrinter::Mode::lines, ProgressPrinter::Mode::json}) {
    const Channel channel(false);
    ASSERT_TRUE(fill(channel.writer()));
    expect_return(channel, [&] {
      ProgressPrinter printer(channel.writer(), mode);
      printer.update(state_at(20, 1, 1));
      printer.print("hello");
      printer.tell("the disk is full");
      printer.finish(state_at(21, 1, 1));
      printer.end(state_at(21, 1, 1), "failed");
    });
    EXPECT_EQ(channel.read_all().find_first_not_of('0'), std::string::npos);
  }
}

TEST(ProgressPrinter, draws_over_its_lines_when_a_stopped_terminal_goes_on) {
  const Channel channel(true);
  ASSERT_GE(channel.writer(), 0);
  expect_return(channel, [&] {
    ProgressPrinter printer(channel.writer(), ProgressPrinter::Mode::terminal);
    printer.update(state_at(0, 1, 1));
    channel.read_all();
    ::tcflow(channel.writer(), TCOOFF);
    printer.update(state_at(1, 2, 1));
    printer.update(state_at(2, 3, 1));
    ::tcflow(channel.writer(), TCOON);
    printer.update(state_at(3, 4, 1));
    const std::string drawn = channel.read_all();
    EXPECT_TRUE(drawn.starts_with("\r\x1b[2A\x1b[J")) << drawn;
    EXPECT_EQ(count(drawn, "/1000"), 1U) << drawn;
    EXPECT_NE(drawn.find("4/1000"), std::string::npos) << drawn;
  });
}

TEST(ProgressPrinter, tells_terminals_from_files) {
  const Channel pipe(false);
  const auto mode = [](const Channel& channel, bool quiet, const char* terminal) {
    return ProgressPrinter::mode_for(channel.writer(), quiet, false, terminal);
  };
  EXPECT_EQ(mode(pipe, false, "xterm"), ProgressPrinter::Mode::lines);
  EXPECT_EQ(mode(pipe, true, "xterm"), ProgressPrinter::Mode::quiet);
  const Channel terminal(true);
  EXPECT_EQ(mode(terminal, false, "xterm"), ProgressPrinter::Mode::terminal);
  for (const char* kind : {"dumb", "", static_cast<const char*>(nullptr)}) {
    EXPECT_EQ(mode(terminal, false, kind), ProgressPrinter::Mode::lines);
  }
}

TEST(ProgressPrinter, breaks_the_summary_between_words_on_a_terminal) {
  const Channel channel(true);
  ASSERT_GE(channel.writer(), 0);
  channel.resize(30);
  ProgressPrinter printer(channel.writer(), ProgressPrinter::Mode::lines);
  printer.tell("launcher: the disk is full, so that nothing more can be written");
  EXPECT_EQ(channel.read_all(),
            "launcher: the disk is full, so\r\nthat nothing more can be\r\nwritten\r\n");
}

}  // namespace
}  // namespace troupe
