#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/control/messages.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// The edge between driver and agents: CAF over mutual TLS (TlsIdentity), heartbeats every 200 ms,
/// a peer that is silent for 1.2 s is lost. Callbacks run on CAF's threads, one at a time per
/// object; they must not block. Other functions are callable from any thread.
///
/// The edge between an agent and the actor processes of its node is not CAF but the socketpair that
/// they inherit (ChildChannel): the agent sees an exit by pidfd within a millisecond, no TLS
/// handshake delays the start of an actor, descriptors of shared memory can travel on it, and a
/// process that computes carries no CAF threads.
using AgentKey = std::uint64_t;

class ControlServer {
 public:
  struct Events {
    std::function<void(AgentKey agent, ControlMessage message)> on_message;
    /// The connection is over. Exactly once per agent that has sent a message.
    std::function<void(AgentKey agent)> on_lost;
  };
  /// Listens at `address` on a port of the kernel's choice.
  static Result<std::unique_ptr<ControlServer>> start(const JobKeys& keys,
                                                      const std::string& address, Events events);
  virtual ~ControlServer() = default;  ///< disconnects; no callback runs afterwards
  virtual std::uint16_t port() const = 0;
  /// Messages to one agent arrive in order; those to a lost one are dropped.
  virtual void send(AgentKey agent, const ControlMessage& message) = 0;
};

class ControlClient {
 public:
  struct Events {
    std::function<void(ControlMessage message)> on_message;
    std::function<void()> on_lost;
  };
  /// Connects and sends `hello`; tries again until `timeout` while the driver refuses or is silent.
  static Result<std::unique_ptr<ControlClient>> connect(const JobKeys& keys,
                                                        const std::string& host, std::uint16_t port,
                                                        const AgentReady& hello, Events events,
                                                        std::chrono::milliseconds timeout);
  virtual ~ControlClient() = default;
  virtual void send(const ControlMessage& message) = 0;
};

}  // namespace troupe
