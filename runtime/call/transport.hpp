#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/call/codec.hpp"

namespace troupe {

/// An authenticated, ordered, bidirectional stream of frames to another process of the job.
class Link {
 public:
  virtual ~Link() = default;
  /// Sends one frame (body, then trailer), or queues it while the peer reads slowly. On a caller's
  /// thread it blocks while more than the transport's bound is queued, at most for `wait`, and then
  /// fails with resource_exhausted; on the transport's own thread it queues without bound and never
  /// blocks. Other errors: peer_died after the link has closed; invalid_argument for a frame above
  /// the transport's limit. A frame that fails is not sent and leaves the link usable.
  virtual Result<void> send(std::span<const std::byte> body, std::span<const std::byte> trailer,
                            std::chrono::nanoseconds wait) = 0;
  /// Closes the link; the closed callback follows on the transport's thread.
  virtual void close() = 0;
};

/// Callbacks to a transport's user, always on the transport's one thread, which must not block.
struct TransportEvents {
  /// A whole frame came in. `frame` may be moved from.
  std::function<void(const std::shared_ptr<Link>& link, Bytes& frame)> on_frame;
  /// The link has ended, for this reason. Exactly once per link that was connected or accepted.
  std::function<void(const std::shared_ptr<Link>& link, const Error& why)> on_closed;
};

/// Makes links between the processes of one job. UnixTransport serves processes of one node,
/// NetworkTransport those of other nodes, too. All functions are callable from any thread.
class Transport {
 public:
  virtual ~Transport() = default;  ///< stops
  /// Starts the thread and listens.
  virtual Result<void> start(TransportEvents events) = 0;
  virtual const std::string& endpoint() const = 0;
  /// Returns at once: frames sent before the peer has authenticated are queued, and a refusal or
  /// failure is reported by on_closed.
  virtual std::shared_ptr<Link> connect(const std::string& endpoint) = 0;
  /// Runs `task` on the transport's thread after `delay`, unless the transport stops first.
  virtual void run_after(std::chrono::milliseconds delay, std::function<void()> task) = 0;
  /// True on the transport's own thread.
  virtual bool on_own_thread() const = 0;
  /// Waits until all frames sent so far are with the kernel, which delivers them even if this
  /// process ends; links that end meanwhile count as done. Errors: timed_out. Not on the own
  /// thread.
  virtual Result<void> flush(std::chrono::milliseconds timeout) = 0;
  /// Closes all links and ends the thread; no event follows. Idempotent.
  virtual void stop() = 0;
};

}  // namespace troupe
