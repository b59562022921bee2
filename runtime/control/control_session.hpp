#pragma once

#include <optional>
#include <string>

#include "runtime/base/lease.hpp"
#include "runtime/control/messages.hpp"

namespace troupe {

/// What one end of a control connection knows of its peer: which messages it may send, and whether
/// it is alive. A plain state machine without I/O; time is an argument. Not synchronised.
class ControlSession {
 public:
  using Clock = Lease::Clock;

  /// What an agent's first message must say.
  struct Hello {
    std::string node;
    std::array<std::byte, 32> build{};
  };

  /// The driver's end: the peer is an agent.
  static ControlSession with_agent(Hello expected, Clock::duration silence_limit,
                                   Clock::time_point now = Clock::now());
  /// The agent's end: the peer is the driver.
  static ControlSession with_driver(Clock::duration silence_limit,
                                    Clock::time_point now = Clock::now());

  /// Checks a frame: returns the message to hand on, or none for a heartbeat. After an error the
  /// connection must be closed.
  Result<std::optional<ControlMessage>> on_frame(std::span<const std::byte> frame,
                                                 Clock::time_point now = Clock::now());
  /// True once the agent has introduced itself; always true of the driver.
  bool is_greeted() const { return !expected_; }
  /// Checks the peer's lease; to be called every heartbeat_interval.
  bool has_expired(Clock::time_point now = Clock::now()) { return lease_.has_expired(now); }
  /// How long the peer may still be silent, so that its lease can be checked just then.
  Clock::duration silence_left(Clock::time_point now = Clock::now()) { return lease_.left(now); }

 private:
  ControlSession(ControlEdge incoming, std::optional<Hello> expected, Lease lease)
      : incoming_(incoming), expected_(std::move(expected)), lease_(lease) {}
  Result<void> check_hello(const ControlMessage& message);

  ControlEdge incoming_;
  std::optional<Hello> expected_;  ///< until it has arrived
  Lease lease_;
};

}  // namespace troupe
