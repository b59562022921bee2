#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "runtime/control/messages.hpp"

namespace troupe {

/// What the driver shows of lines that its actors' processes print (ClusterOptions::forward_logs):
/// each with where it comes from. A line that comes again within `window`, from whatever process,
/// is counted instead, and told once with its count when that time is over. Bounded: of more than
/// `max_lines` different ones within it, the others are shown each time. Not synchronised.
class ForwardedLogs {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds window{5};
  static constexpr std::size_t max_lines = 1000;

  /// Returns the lines to be shown for these, made printable, each with its newline.
  std::string take(const std::string& node, const LogLines& lines, Clock::time_point now);
  /// Returns those that have come again and whose time is over; all of them if `is_end`.
  std::string take_repeated(Clock::time_point now, bool is_end = false);
  /// True while lines are remembered, for which take_repeated is to be called.
  bool is_waiting() const { return !order_.empty(); }

 private:
  struct Seen {
    Clock::time_point until;
    std::size_t times = 0;  ///< after the first
    std::set<std::string> sources;
    std::string last_source;
  };
  std::map<std::string, Seen, std::less<>> seen_;  ///< by line
  std::deque<std::string> order_;                  ///< of seen_, the oldest first
};

}  // namespace troupe
