#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/keep_going.hpp"
#include "runtime/base/result.hpp"
#include "runtime/control/messages.hpp"
#include "runtime/link/link.hpp"
#include "runtime/link/port_range.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// The connection between driver and agents: messages over a TLS link of "driver/job" and
/// "agent/NODE", with the key of that pair, and heartbeats of the driver every 200 ms, which agents
/// answer. A peer that is silent for `silence_limit` is lost; time in which the waiting process
/// itself did not run does not count. Each end of a link is one CAF actor that supervises its peer.
/// Callbacks run on CAF's one thread, one at a time per object; they must not block. Other
/// functions are callable from any thread.
///
/// An agent and the actor processes of its node are connected by the socketpair that they inherit
/// (ChildChannel): the agent sees an exit by pidfd within a millisecond, no handshake delays the
/// start of an actor, descriptors of shared memory can travel on it, and an actor process needs no
/// extra threads for it.
inline constexpr std::chrono::milliseconds heartbeat_interval{200};
inline constexpr std::chrono::milliseconds silence_limit{1800};

/// The key with which an agent that chose the name `node` joins by a token.
Key join_key(const Key& token, const std::string& node);

/// Identifies one connection of an agent; never reused.
using AgentKey = std::uint64_t;

class ControlServer {
 public:
  struct Events {
    /// An agent's first message is AgentReady, with the node it was admitted for.
    std::function<void(AgentKey agent, ControlMessage message)> on_message;
    /// The connection has ended. Exactly once per agent that has sent a message.
    std::function<void(AgentKey agent, const Error& why)> on_lost;
    /// An agent with the right key was turned away, for example because of another build.
    std::function<void(const std::string& node, const Error& why)> on_refused;
  };
  /// With a `token` it lets in agents of any name that have the token's join_key() for it, from the
  /// first moment on: agents that join may have tried to connect since long before.
  static Result<std::unique_ptr<ControlServer>> start(const std::string& address, Events events,
                                                      PortRange ports = {},
                                                      const std::optional<Key>& token = {});
  virtual ~ControlServer() = default;  ///< disconnects; no callback runs afterwards
  virtual std::uint16_t port() const = 0;
  /// Lets the agent of `node` in, once, if it has this key, which belongs to the pair alone. A
  /// later call for the same node admits a later agent instead, with another key.
  virtual void admit(const std::string& node, const Key& key) = 0;
  /// Lets one peer that is no agent in as well, any number of times, at the same port: its links
  /// have these events, and nothing of the control plane. Call once.
  virtual void admit_other(const LinkPeer& peer, const Key& key, LinkEvents events) = 0;
  /// Sends a message. Those to one agent arrive in order; those to a lost one are dropped. Errors:
  /// invalid_argument for a message that is too large, resource_exhausted if the agent does not
  /// read.
  virtual Result<void> send(AgentKey agent, const ControlMessage& message) = 0;
};

class ControlClient {
 public:
  struct Events {
    std::function<void(ControlMessage message)> on_message;
    std::function<void(const Error& why)> on_lost;  ///< once at most
  };
  /// Connects as the agent of `hello.node` and sends `hello`; tries again until `timeout` while
  /// there is no driver or it is silent, and `keep_going`, asked at least every six seconds,
  /// returns true.
  /// `key` is the one that the node was admitted with. Errors: permission_denied at once if the
  /// driver has another; cancelled; io.
  static Result<std::unique_ptr<ControlClient>> connect(const Key& key, const std::string& host,
                                                        std::uint16_t port, const AgentReady& hello,
                                                        Events events,
                                                        std::chrono::milliseconds timeout,
                                                        const KeepGoing& keep_going = {});
  virtual ~ControlClient() = default;  ///< disconnects; no callback runs afterwards
  /// Sends a message. A driver that has stopped reading counts as lost.
  virtual void send(const ControlMessage& message) = 0;
  /// Finds out whether the driver is silent for too long: it then counts as lost. Returns how long
  /// it may still be silent. To be called by one thread, every heartbeat_interval or more often: so
  /// an agent needs no timer for it besides its own.
  virtual std::chrono::milliseconds check_driver() = 0;
};

}  // namespace troupe
