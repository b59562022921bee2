#include "launcher/progress/progress_printer.hpp"

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

#include "tests/unit/launcher/progress/progress_state.hpp"

namespace troupe::progress_test {
namespace {

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
}  // namespace troupe::progress_test
