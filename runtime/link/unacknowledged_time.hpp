#pragma once

#include <chrono>
#include <optional>

namespace troupe {

/// Counts how long the host at the other end of a TCP connection has acknowledged nothing though
/// something is under way to it. TCP's keepalive rests meanwhile, and TCP_USER_TIMEOUT would also
/// end the connection to a process that is stopped and whose buffers are full: its host still
/// answers, and this does not count that. Not synchronised.
class UnacknowledgedTime {
 public:
  using Clock = std::chrono::steady_clock;
  /// Looks at the socket. Nothing if nothing is under way. Counts from the first look that found
  /// something to be.
  std::optional<std::chrono::milliseconds> look(int socket, Clock::time_point now);

 private:
  std::optional<Clock::time_point> since_;
};

}  // namespace troupe
