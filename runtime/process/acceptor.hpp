#pragma once

#include <chrono>
#include <cstddef>

#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Accepts from a listening socket at a bounded cost, whatever strangers do: at most `burst`
/// connections a turn of the caller's loop, then a pause; those that wait meanwhile wait in the
/// kernel. Where descriptors run out (EMFILE, ENFILE) a reserved one is given up to accept what
/// waits and close it at once, and then there is a pause too: a listener that cannot accept would
/// be readable for ever, and poll would spin. Not synchronised.
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
  /// True while the socket is not to be polled.
  bool rests(Clock::time_point now) const { return now < rests_until_; }
  /// When the pause ends or has ended.
  Clock::time_point rests_until() const { return rests_until_; }
  /// The next connection that waits, non-blocking; none if there is none or a pause has begun. Call
  /// until none comes.
  UniqueFd accept(Clock::time_point now);
  /// Connections closed because there was no descriptor, since the last call.
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
