#include "launcher/progress/progress_printer.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/base/terminal_text.hpp"

namespace troupe {
namespace {

constexpr double redraw_seconds = 0.25;
constexpr double log_seconds = 10;
constexpr double json_seconds = 1;
constexpr int default_columns = 80;
/// How long to wait for a reader that has fallen behind.
constexpr int stuck_ms = 100;
/// The same for messages that must be shown.
constexpr int stuck_when_told_ms = 1000;
/// A terminal that is ready takes a piece of this size without blocking.
constexpr std::size_t terminal_piece = 256;

/// True if a terminal of this kind (TERM) can move its cursor up.
bool moves_cursor(const char* terminal) {
  return terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

}  // namespace

ProgressPrinter::Mode ProgressPrinter::mode_for(int fd, bool quiet, bool json,
                                                const char* terminal) {
  if (quiet) return Mode::quiet;
  if (json) return Mode::json;
  return ::isatty(fd) != 0 && moves_cursor(terminal) ? Mode::terminal : Mode::lines;
}

ProgressPrinter::ProgressPrinter(int fd, Mode mode)
    : fd_(fd),
      mode_(mode),
      piece_bytes_(::isatty(fd) != 0 ? terminal_piece : PIPE_BUF),
      next_draw_seconds_(mode == Mode::lines ? log_seconds : 0) {}

ProgressPrinter::~ProgressPrinter() {
  if (!drawn_.empty()) put(erase_sequence(), stuck_ms);
}

void ProgressPrinter::update(const ProgressState& state) {
  if (mode_ == Mode::quiet || finished_) return;
  view_.update(state);
  if (state.seconds < next_draw_seconds_) return;
  if (mode_ == Mode::terminal) {
    next_draw_seconds_ = state.seconds + redraw_seconds;
    draw();
  } else if (mode_ == Mode::json) {
    next_draw_seconds_ = state.seconds + json_seconds;
    put(view_.json_line() + "\n", 0);
  } else {
    next_draw_seconds_ = state.seconds + log_seconds;
    put(view_.log_line() + "\n", 0);
  }
}

void ProgressPrinter::print(std::string_view line) {
  if (mode_ == Mode::quiet) return;
  if (mode_ == Mode::json) {
    put(json_message(line) + "\n", stuck_ms);
    return;
  }
  const bool redraw = !drawn_.empty();
  put(fmt::format("{}{}\n", erase_sequence(), fitted(line)), stuck_ms);
  if (redraw) draw();
}

void ProgressPrinter::tell(std::string_view text) {
  put(fmt::format("{}{}\n", erase_sequence(), fitted(text)), stuck_when_told_ms);
}

void ProgressPrinter::finish(const ProgressState& state) {
  if (mode_ == Mode::quiet || finished_) return;
  view_.update(state);
  finished_ = true;
  if (mode_ == Mode::json) return;
  put(fmt::format("{}{}\n", erase_sequence(), fitted(view_.summary())), stuck_ms);
}

void ProgressPrinter::end(const ProgressState& state, std::string_view outcome) {
  finished_ = true;
  if (mode_ != Mode::json) return;
  view_.update(state);
  put(view_.json_line(outcome) + "\n", stuck_when_told_ms);
}

void ProgressPrinter::draw() {
  const std::vector<std::size_t> before = drawn_;
  const std::string erase = erase_sequence();
  const std::vector<std::string> lines = view_.live_lines(columns());
  std::string text = erase;
  for (const std::string& line : lines) text += line + "\n";
  std::size_t written = put(text, 0);
  if (written < erase.size() || written == 0) {
    drawn_ = before;
    return;
  }
  written -= erase.size();
  for (const std::string& line : lines) {
    if (written <= line.size()) return;
    written -= line.size() + 1;
    drawn_.push_back(width_of(line));
  }
}

/// Moves to the first drawn line and clears everything below. The cursor always rests below the
/// live lines at column 0, so that however the program ends the terminal is left clean.
std::string ProgressPrinter::erase_sequence() {
  if (drawn_.empty()) return {};
  const auto width = static_cast<std::size_t>(columns());
  std::size_t rows = 0;
  for (const std::size_t line : drawn_)
    rows += std::max<std::size_t>(1, (line + width - 1) / width);
  drawn_.clear();
  return fmt::format("\r\x1b[{}A\x1b[J", rows);
}

std::size_t ProgressPrinter::put(std::string_view text, int patience_ms) const {
  std::size_t written = 0;
  while (written < text.size()) {
    // A blocking descriptor must not be written to before it has room, as others may share it.
    pollfd descriptor{fd_, POLLOUT, 0};
    const int ready = ::poll(&descriptor, 1, written == 0 ? patience_ms : stuck_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const std::string_view piece = text.substr(written, piece_bytes_);
    const ssize_t count = ::write(fd_, piece.data(), piece.size());
    if (count > 0) {
      written += static_cast<std::size_t>(count);
    } else if (errno != EINTR && errno != EAGAIN) {
      break;
    }
  }
  return written;
}

/// Terminals break lines anywhere; in a file each text stays on one line.
std::string ProgressPrinter::fitted(std::string_view text) const {
  if (::isatty(fd_) == 0) return std::string(text);
  return fmt::format("{}", fmt::join(wrapped(text, static_cast<std::size_t>(columns())), "\n"));
}

int ProgressPrinter::columns() const {
  winsize size{};
  if (::ioctl(fd_, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return default_columns;
  return size.ws_col;
}

}  // namespace troupe
