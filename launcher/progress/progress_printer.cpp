#include "launcher/progress/progress_printer.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace troupe {
namespace {

constexpr double redraw_seconds = 0.25;
constexpr double log_seconds = 10;
constexpr double json_seconds = 1;
constexpr int default_columns = 80;
constexpr int stuck_terminal_ms = 100;

}  // namespace

ProgressPrinter::Mode ProgressPrinter::mode_for(int fd, bool quiet, bool json) {
  if (quiet) return Mode::quiet;
  if (json) return Mode::json;
  return ::isatty(fd) != 0 ? Mode::terminal : Mode::lines;
}

ProgressPrinter::ProgressPrinter(int fd, Mode mode)
    : fd_(fd), mode_(mode), next_draw_seconds_(mode == Mode::lines ? log_seconds : 0) {}

ProgressPrinter::~ProgressPrinter() { clear(); }

void ProgressPrinter::update(const ProgressState& state) {
  if (mode_ == Mode::quiet || finished_) return;
  view_.update(state);
  if (state.seconds < next_draw_seconds_) return;
  if (mode_ == Mode::terminal) {
    next_draw_seconds_ = state.seconds + redraw_seconds;
    draw();
  } else if (mode_ == Mode::json) {
    next_draw_seconds_ = state.seconds + json_seconds;
    put(view_.json_line(false) + "\n");
  } else {
    next_draw_seconds_ = state.seconds + log_seconds;
    put(view_.log_line() + "\n");
  }
}

void ProgressPrinter::print(std::string_view line) {
  if (mode_ == Mode::quiet) return;
  if (mode_ == Mode::json) return put(json_message(line) + "\n");
  const bool redraw = !drawn_.empty();
  put(fmt::format("{}{}\n", erase_sequence(), line));
  if (redraw) draw();
}

void ProgressPrinter::clear() {
  if (!drawn_.empty()) put(erase_sequence());
}

void ProgressPrinter::finish(const ProgressState& state) {
  if (mode_ == Mode::quiet || finished_) return;
  view_.update(state);
  finished_ = true;
  if (mode_ == Mode::json) return put(view_.json_line(true) + "\n");
  put(fmt::format("{}{}\n", erase_sequence(), view_.summary()));
}

void ProgressPrinter::draw() {
  std::string text = erase_sequence();
  for (const std::string& line : view_.live_lines(columns())) {
    text += line + "\n";
    drawn_.push_back(line.size());
  }
  put(text);
}

/// Back to the first drawn line, and nothing left below. The cursor always rests below the live
/// lines at column 0, so that whatever ends the program leaves a clean terminal.
std::string ProgressPrinter::erase_sequence() {
  if (drawn_.empty()) return {};
  const auto width = static_cast<std::size_t>(columns());
  std::size_t rows = 0;
  for (const std::size_t length : drawn_)
    rows += std::max<std::size_t>(1, (length + width - 1) / width);
  drawn_.clear();
  return fmt::format("\r\x1b[{}A\x1b[J", rows);
}

void ProgressPrinter::put(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t count = ::write(fd_, text.data(), text.size());
    if (count > 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EAGAIN) {
      pollfd descriptor{fd_, POLLOUT, 0};
      if (::poll(&descriptor, 1, stuck_terminal_ms) <= 0) return;
    } else if (errno != EINTR) {
      return;
    }
  }
}

int ProgressPrinter::columns() const {
  winsize size{};
  if (::ioctl(fd_, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return default_columns;
  return size.ws_col;
}

}  // namespace troupe
