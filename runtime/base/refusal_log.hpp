#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace troupe {

/// Counts what a listener refuses and sums it up in at most one line per ten seconds, so that
/// strangers cannot fill a log. Not synchronised.
class RefusalLog {
 public:
  using Clock = std::chrono::steady_clock;

  /// `listener` begins each line, say "control plane".
  explicit RefusalLog(std::string listener) : listener_(std::move(listener)) {}

  /// Counts refusals. `why` is one of few fixed texts, e.g. "no TLS".
  void note(std::string_view why, std::size_t count = 1);
  /// Returns "control plane: refused 31 connections (29 no TLS, 2 silent)" if there are refusals to
  /// report and the last line is at least ten seconds old; else empty.
  std::string take_line(Clock::time_point now);
  /// When take_line is due; the end of time if there is nothing to report.
  Clock::time_point due() const;

 private:
  std::string listener_;
  std::map<std::string, std::size_t, std::less<>> counts_;
  Clock::time_point next_line_{};
};

}  // namespace troupe
