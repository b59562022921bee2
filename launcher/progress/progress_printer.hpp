#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/progress/progress_view.hpp"

namespace troupe {

/// Shows a ProgressView on a file descriptor (stderr, which it does not own): on a terminal a few
/// lines redrawn at most 4 times a second, as wide as it is at that moment; elsewhere a line every
/// 10 seconds; for programs a JSON object every second. Whatever it has drawn is whole: each redraw
/// is one write, and clear(), finish() and the destructor leave the cursor at the beginning of an
/// empty line, also when a terminal that wraps its lines anew has become narrower. Failing writes
/// are ignored: progress never stops a job. One thread at a time.
class ProgressPrinter {
 public:
  enum class Mode { terminal, lines, json, quiet };

  /// quiet or json if so asked; else terminal if `fd` is one, or lines.
  static Mode mode_for(int fd, bool quiet, bool json = false);

  ProgressPrinter(int fd, Mode mode);
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;
  ~ProgressPrinter();

  /// Takes the state in and shows it if the time has come. Call it as often as convenient.
  void update(const ProgressState& state);

  /// Prints a line of text above the live lines (not when quiet).
  void print(std::string_view line);

  /// Takes the live lines away, so that others may write to the terminal.
  void clear();

  /// The last word: the live lines give way to the summary.
  void finish(const ProgressState& state);

 private:
  void draw();
  void put(std::string_view text) const;
  std::string erase_sequence();
  int columns() const;

  int fd_;
  Mode mode_;
  ProgressView view_;
  double next_draw_seconds_ = 0;
  std::vector<std::size_t> drawn_;  ///< how long the live lines are
  bool finished_ = false;
};

}  // namespace troupe
