#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace troupe {

/// Times of the phases of a start, for the log.
class PhaseTimes {
 public:
  /// Ends the phase `name`, which began with the last call or at construction.
  void note(std::string_view name) {
    const Clock::time_point now = Clock::now();
    if (!text_.empty()) text_ += ", ";
    text_ += fmt::format("{} {}", name, milliseconds(now - part_began_));
    part_began_ = now;
  }

  /// "410 ms: library 90, device 320".
  std::string text() const {
    return fmt::format("{} ms: {}", milliseconds(part_began_ - began_), text_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static std::int64_t milliseconds(Clock::duration time) {
    return std::chrono::round<std::chrono::milliseconds>(time).count();
  }

  const Clock::time_point began_ = Clock::now();
  Clock::time_point part_began_ = began_;
  std::string text_;
};

}  // namespace troupe
