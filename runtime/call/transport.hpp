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
  /// thread this blocks while more than the transport's bound is queued and fails with `timeout`
  /// after its send timeout; on the transport's own thread it never blocks. peer_died after the
  /// link has closed. invalid_argument for a frame above the transport's limit: nothing is sent,
  /// and the link lives on.
  virtual Result<void> send(std::span<const std::byte> body,
                            std::span<const std::byte> trailer) = 0;
  /// Closes; the closed callback follows, on the transport's thread.
  virtual void close() = 0;
};

/// What a transport tells its user, always on the transport's one thread, which must not block.
struct TransportEvents {
  /// A whole frame came in. `frame` may be moved from.
  std::function<void(const std::shared_ptr<Link>& link, Bytes& frame)> on_frame;
  /// The link is over, with why. Exactly once per link that was connected or accepted.
  std::function<void(const std::shared_ptr<Link>& link, const Error& why)> on_closed;
};

/// Makes links between the processes of one job. The one for processes of a node is UnixTransport;
/// one for other nodes slots in here. All functions are callable from any thread.
class Transport {
 public:
  virtual ~Transport() = default;  ///< stops
  /// Starts the thread and listens.
  virtual Result<void> start(TransportEvents events) = 0;
  virtual const std::string& endpoint() const = 0;
  /// Returns at once: frames sent before the peer has proved itself are queued, and a refusal or
  /// failure comes as on_closed.
  virtual std::shared_ptr<Link> connect(const std::string& endpoint) = 0;
  /// Runs `task` on the transport's thread after `delay`, unless the transport stops first.
  virtual void run_after(std::chrono::milliseconds delay, std::function<void()> task) = 0;
  /// True on the transport's own thread.
  virtual bool on_own_thread() const = 0;
  /// Waits until all frames that were sent by now are with the kernel, which delivers them even if
  /// this process ends; links that end meanwhile count as done. timeout. Not on the own thread.
  virtual Result<void> flush(std::chrono::milliseconds timeout) = 0;
  /// Closes all links and ends the thread; no event is told afterwards. Idempotent.
  virtual void stop() = 0;
};

}  // namespace troupe
