#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/control/messages.hpp"

namespace troupe {

/// Which of the lines that a process prints go to the driver: not those of the runtime's own log,
/// and so many a second. Not synchronised.
class PrintedLines {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t lines_per_second = 1000;
  static constexpr std::size_t bytes_per_second = std::size_t{256} << 10;

  /// Returns what goes to the driver of these whole lines, if anything; its process is not set.
  std::optional<LogLines> take(std::string_view lines, Clock::time_point now);

 private:
  Clock::time_point second_{};         ///< its beginning
  std::size_t lines_ = 0, bytes_ = 0;  ///< in it
  std::uint64_t dropped_ = 0;          ///< lines that have not been told of
};

/// True for a line of a process's own log (log::write).
bool is_log_line(std::string_view line);

}  // namespace troupe
