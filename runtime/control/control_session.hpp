#pragma once

#include <optional>
#include <string>

#include "runtime/control/messages.hpp"

namespace troupe {

/// What one end of a control connection knows of its peer: which messages it may send. A plain
/// state machine without I/O. Not synchronised.
class ControlSession {
 public:
  /// What an agent's first message must say.
  struct Hello {
    std::string node;
    std::array<std::byte, 32> build{};
  };

  /// The driver's end: the peer is an agent.
  static ControlSession with_agent(Hello expected);
  /// The agent's end: the peer is the driver.
  static ControlSession with_driver();

  /// Checks a frame and returns its message. After an error the connection must be closed.
  Result<ControlMessage> on_frame(std::span<const std::byte> frame);
  /// True once the agent has introduced itself; always true of the driver.
  bool is_greeted() const { return !expected_; }

 private:
  ControlSession(ControlEdge incoming, std::optional<Hello> expected)
      : incoming_(incoming), expected_(std::move(expected)) {}
  Result<void> check_hello(const ControlMessage& message);

  ControlEdge incoming_;
  std::optional<Hello> expected_;  ///< until it has arrived
};

}  // namespace troupe
