#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/link/port_range.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// Secret keys (CURVE) of the two ends of a channel. Anybody who knows one pair can talk on the
/// channels made with it; the public halves are computed, so nothing else has to be exchanged.
struct ChannelKeys {
  Key listener{};
  Key connector{};

  /// Derives both from a 32-byte key that the job keeps secret (JobKeys::derive), by HMAC-SHA256
  /// over `purpose` (say "replica 0, epoch 3") and the end's name: different purposes give
  /// unrelated keys.
  static ChannelKeys derive(const Key& key, std::string_view purpose);
};

/// The address where a listener listens.
struct ChannelEndpoint {
  /// Empty: this node only (a unix socket in the abstract namespace, so no file). Else the
  /// interface or address ("eth0", "10.0.0.7", "fd00::7") of a TCP socket.
  std::string interface{};
  PortRange ports{};  ///< of a TCP socket, which takes the first free one
  /// On this node: the process whose connections are accepted; 0: any of this process's uid. All
  /// others are closed as soon as they are accepted. A TCP socket accepts anybody's.
  int peer_pid = 0;

  static ChannelEndpoint on_this_node(int peer_pid = 0) { return {.peer_pid = peer_pid}; }
  static ChannelEndpoint on_network(std::string interface, PortRange ports = {}) {
    return {.interface = std::move(interface), .ports = ports};
  }
};

/// One received message. Movable; the bytes do not move with it.
class Message {
 public:
  Message() = default;
  /// The payload, 8-byte aligned, valid while this object lives.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  friend class Channel;
  using Owner = std::unique_ptr<void, void (*)(void*)>;
  Message(Owner owner, std::span<const std::byte> bytes)
      : owner_(std::move(owner)), bytes_(bytes) {}

  Owner owner_{nullptr, [](void*) {}};
  std::span<const std::byte> bytes_;
};

/// A bounded, ordered, two-way stream of messages between two processes. Encrypted and
/// authenticated both ways (CurveZMQ): an end whose keys differ is never connected, so what it
/// sends is lost and the honest end only runs into its deadline. A connection that has not finished
/// its handshake within `handshake_timeout` is closed. Name the peer's process (ChannelEndpoint) if
/// it is known: connections of the same user's other programs, which ZeroMQ does not count, then
/// cost no descriptor.
///
/// Delivered messages are whole and in order; messages under way when an end dies or is destroyed
/// are lost (nothing lingers), and a peer that is gone shows as a timeout: supervision watches
/// processes, not the channel. After a failure make a new channel.
///
/// Threads: one thread at a time, except interrupt(). A handshake makes progress only while the
/// listener is inside send() or receive().
class Channel {
 public:
  static constexpr std::size_t max_message_bytes = 256u << 20;
  /// Messages queued per direction and end before send() blocks.
  static constexpr int queue_limit = 256;
  static constexpr std::chrono::milliseconds handshake_timeout{5000};

  /// Starts to listen; the other process must connect to address(). Errors: invalid_argument for an
  /// interface that does not exist, resource_exhausted (also if every port is taken).
  static Result<Channel> listen(const ChannelKeys& keys, const ChannelEndpoint& endpoint);

  /// Begins to connect to a listener's address(); returns at once and keeps trying in the
  /// background. Errors: invalid_argument for a malformed address, resource_exhausted.
  static Result<Channel> connect(const ChannelKeys& keys, const std::string& address);

  Channel(Channel&&) noexcept;
  Channel& operator=(Channel&&) noexcept;
  ~Channel();

  /// "ipc://@troupe-..." or "tcp://10.0.0.7:41235".
  const std::string& address() const;

  /// Copies the message into the queue, waiting while the peer is not connected yet or the queue is
  /// full. Errors: timed_out, cancelled (interrupt()), invalid_argument above max_message_bytes.
  Result<void> send(std::span<const std::byte> bytes, Deadline deadline);

  /// Waits for the next message. Errors: timed_out, cancelled (interrupt()).
  Result<Message> receive(Deadline deadline);

  /// Makes the send() or receive() that waits, or else the next one that would wait, return
  /// `cancelled`. Several interrupts before that count as one; the channel stays usable. Callable
  /// from any thread.
  void interrupt();

 private:
  struct State;
  explicit Channel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace troupe
