#pragma once

#include <chrono>
#include <cstddef>

#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Accepts from a listening socket at a bounded cost, whatever strangers do: at most `burst`
/// connections per turn of the caller's loop, then a pause; waiting connections stay in the kernel.
/// When descriptors run out (EMFILE, ENFILE) a reserved one is given up to accept the waiting
/// connections and close them at once, again with a pause: a listener that cannot accept would stay
/// readable, and poll would spin. Not synchronised.
///
///   if (acceptor.rests_until(now)) ...          // do not poll fd(), wake up then
///   while (UniqueFd socket = acceptor.accept(now)) ...   // when fd() is readable
class Acceptor {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    int burst = 32;
    std::chrono::milliseconds pause{20};
    std::chrono::milliseconds pause_without_descriptors{100};
  };

  /// `listener` is a listening, non-blocking socket.
  explicit Acceptor(UniqueFd listener) : Acceptor(std::move(listener), Limits()) {}
  Acceptor(UniqueFd listener, Limits limits);

  int fd() const { return listener_.get(); }
  /// True while the socket must not be polled.
  bool rests(Clock::time_point now) const { return now < rests_until_; }
  /// When the pause ends or has ended.
  Clock::time_point rests_until() const { return rests_until_; }
  /// Returns the next waiting connection, non-blocking; none if there is none or a pause has begun.
  /// Call until it returns none.
  UniqueFd accept(Clock::time_point now);
  /// Connections closed for lack of a descriptor since the last call.
  std::size_t take_turned_away();

 private:
  void turn_away(Clock::time_point now);

  UniqueFd listener_;
  UniqueFd reserve_;
  Limits limits_;
  int accepted_ = 0;  ///< in this turn
  std::size_t turned_away_ = 0;
  Clock::time_point rests_until_{};
};

}  // namespace troupe
