#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/progress/progress_view.hpp"

namespace troupe {

/// Shows a ProgressView on a file descriptor (stderr, which it does not own): on a terminal a few
/// lines redrawn at most 4 times a second, as wide as it is at that moment; elsewhere a line every
/// 10 seconds; for programs a JSON object every second. tell(), finish() and the
/// destructor leave the cursor at the beginning of an empty line, also when a terminal that wraps
/// its lines anew has become narrower. Progress never stops a job: failing writes are ignored, and
/// what a stalled reader (a full pipe, Ctrl-S) has no room for is left out. One thread at a time.
class ProgressPrinter {
 public:
  enum class Mode { terminal, lines, json, quiet };

  /// quiet or json if so asked; else terminal if `fd` is one that can move its cursor, or lines.
  /// `terminal` is its kind, the environment's TERM; "dumb" and null cannot.
  static Mode mode_for(int fd, bool quiet, bool json, const char* terminal);

  ProgressPrinter(int fd, Mode mode);
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;
  ~ProgressPrinter();

  /// Takes the state in and shows it if the time has come. Call it as often as convenient.
  void update(const ProgressState& state);

  /// Prints a line of text above the live lines (not when quiet).
  void print(std::string_view line);

  /// Prints what people must know in any mode, as text: a reader who has fallen behind is waited
  /// for a second.
  void tell(std::string_view text);

  /// The last word to people: the live lines give way to the summary.
  void finish(const ProgressState& state);

  /// The last word to programs, however the job ended: `outcome` as report.json has it.
  void end(const ProgressState& state, std::string_view outcome);

 private:
  void draw();
  /// Writes as much as the descriptor takes without blocking: nothing if it has no room within
  /// `patience_ms`. How many bytes it took.
  std::size_t put(std::string_view text, int patience_ms) const;
  std::string erase_sequence();
  std::string fitted(std::string_view text) const;
  int columns() const;

  int fd_;
  Mode mode_;
  std::size_t piece_bytes_;  ///< what is written at once
  ProgressView view_;
  double next_draw_seconds_ = 0;
  std::vector<std::size_t> drawn_;  ///< columns that each live line takes
  bool finished_ = false;
};

}  // namespace troupe
