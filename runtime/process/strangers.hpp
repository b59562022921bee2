#pragma once

#include <chrono>
#include <list>
#include <optional>

namespace troupe {

/// A listener's connections that have not authenticated, by descriptor, oldest first. A plain data
/// structure without I/O. Not synchronised.
class Strangers {
 public:
  using Clock = std::chrono::steady_clock;

  Strangers(std::size_t most, std::chrono::milliseconds patience)
      : most_(most), patience_(patience) {}

  /// Adds one. If that is too many, returns the one to drop: the oldest that has sent nothing, or
  /// else the oldest, but never the new one.
  std::optional<int> add(int fd, Clock::time_point now);
  /// Notes that the connection has sent something.
  void mark_speaking(int fd);
  /// Removes a connection that was dropped or has authenticated.
  void remove(int fd);
  /// Returns the oldest connection if its time is over.
  std::optional<int> overdue(Clock::time_point now) const;
  /// When the next one is overdue; the end of time if there is none.
  Clock::time_point due() const;
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    int fd;
    Clock::time_point since;
    bool speaks = false;
  };
  std::list<Entry>::iterator find(int fd);

  std::size_t most_;
  std::chrono::milliseconds patience_;
  std::list<Entry> entries_;
};

}  // namespace troupe
