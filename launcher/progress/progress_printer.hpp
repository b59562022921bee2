#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/progress/progress_view.hpp"

namespace troupe {

/// Shows a ProgressView on a file descriptor (stderr, which it does not own): on a terminal a few
/// lines redrawn at most 4 times a second, at its current width; elsewhere a line every 10 seconds;
/// for programs a JSON object every second. tell(), finish() and the destructor leave the cursor at
/// the beginning of an empty line, even if a terminal that rewraps its lines has become narrower.
/// Progress never stops a job: failing writes are ignored, and output for which a stalled reader (a
/// full pipe, Ctrl-S) has no room is dropped. One thread at a time.
class ProgressPrinter {
 public:
  enum class Mode { terminal, lines, json, quiet };

  /// Returns quiet or json if requested; else terminal if `fd` is one that can move its cursor,
  /// otherwise lines. `terminal` is its kind, the environment's TERM; "dumb" and null cannot.
  static Mode mode_for(int fd, bool quiet, bool json, const char* terminal);

  ProgressPrinter(int fd, Mode mode);
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;
  ~ProgressPrinter();

  /// Takes the state in and shows it if the time has come. Call it as often as convenient.
  void update(const ProgressState& state);

  /// Prints a line of text above the live lines (not when quiet).
  void print(std::string_view line);

  /// Prints a message that users must see in any mode, as text; waits a second for a reader that
  /// has fallen behind.
  void tell(std::string_view text);

  /// The last message to users: the summary replaces the live lines.
  void finish(const ProgressState& state);

  /// The last message to programs, however the job ended; `outcome` as in report.json.
  void end(const ProgressState& state, std::string_view outcome);

 private:
  void draw();
  /// Writes as much as the descriptor takes without blocking: nothing if it has no room within
  /// `patience_ms`. Returns the number of bytes written.
  std::size_t put(std::string_view text, int patience_ms) const;
  std::string erase_sequence();
  std::string fitted(std::string_view text) const;
  int columns() const;

  int fd_;
  Mode mode_;
  std::size_t piece_bytes_;  ///< written at once
  ProgressView view_;
  double next_draw_seconds_ = 0;
  std::vector<std::size_t> drawn_;  ///< columns that each live line takes
  bool finished_ = false;
};

}  // namespace troupe
