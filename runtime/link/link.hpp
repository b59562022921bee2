#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/link/frames.hpp"
#include "runtime/link/link_peer.hpp"

namespace troupe {

/// An authenticated, encrypted, ordered stream of frames between two processes, also of different
/// hosts: TCP and TLS 1.3 with a key of the pair (TlsContext). Functions are callable from any
/// thread.
///
/// What it does not do: it has no heartbeats (a peer that is stopped keeps its connection, TCP's
/// keepalive finds a host that is gone after about 15 s), and it does not connect again.
class TlsLink {
 public:
  virtual ~TlsLink() = default;
  /// Whom the link was made to, or who proved to be at its other end; known in LinkEvents.
  virtual const LinkPeer& peer() const = 0;
  /// Queues a frame; frames sent before on_open wait for it. While more than `max_queued_bytes` of
  /// LinkLimits would be queued it waits at most `wait` (on the loop's own thread not at all).
  /// Errors: resource_exhausted if there is still no room, peer_died after the link has closed,
  /// invalid_argument above `max_frame_bytes`.
  virtual Result<void> send(LinkFrame frame, std::chrono::milliseconds wait = {}) = 0;
  virtual std::size_t queued_bytes() const = 0;
  /// Closes at once, without sending what is queued; on_closed follows with `cancelled`.
  virtual void close() = 0;
};

/// What a loop tells the user of a link, on its one thread, which must not block.
struct LinkEvents {
  /// Both ends have proven who they are. Comes before all others, but for the on_closed of a link
  /// of connect() that never opened.
  std::function<void(const std::shared_ptr<TlsLink>& link)> on_open;
  /// A whole frame came in. `frame` may be moved from.
  std::function<void(const std::shared_ptr<TlsLink>& link, std::vector<std::byte>& frame)> on_frame;
  /// The link is over. Exactly once per link of connect(), and per accepted link that has opened;
  /// strangers at a listener are not told, but counted in its log line.
  std::function<void(const std::shared_ptr<TlsLink>& link, const Error& why)> on_closed;
};

struct LinkLimits {
  std::size_t max_frame_bytes = std::size_t{1} << 30;    ///< received or sent; below 4 GiB
  std::size_t max_queued_bytes = std::size_t{64} << 20;  ///< a single frame may be larger
  std::chrono::milliseconds handshake_timeout{2000};
  /// Connections of a listener that have not proven who they are; beyond, the oldest is dropped,
  /// silent ones first.
  std::size_t max_strangers = 64;
};

/// One thread (epoll) that does the I/O of all its listeners and links. Functions are callable from
/// any thread.
///
/// What strangers can do to a listener is bounded: connections are accepted at a limited rate
/// (Acceptor); one that is silent costs a descriptor, one that sends something that is not TLS is
/// closed before a session is made for it, and all are dropped after the handshake's timeout. What
/// was refused is told in one log line in ten seconds.
class LinkLoop {
 public:
  /// Gives the key of a peer that wants to connect, as link_key() makes it; empty refuses. Called
  /// on the loop's thread.
  using KeyOf = std::function<std::optional<Key>(const LinkPeer& peer)>;

  static Result<std::unique_ptr<LinkLoop>> start(LinkLimits limits = {});
  virtual ~LinkLoop() = default;  ///< stops

  /// Listens at a numeric address, on a port of the kernel's choice, which is returned, until the
  /// loop stops. `name` begins the log lines.
  virtual Result<std::uint16_t> listen(const std::string& name, const std::string& address,
                                       KeyOf key_of, LinkEvents events) = 0;
  /// Begins to connect as `self` to `peer` and returns at once; the outcome is an event. `host` may
  /// be a name, which is looked up here. Errors: not_found, io.
  virtual Result<std::shared_ptr<TlsLink>> connect(const std::string& host, std::uint16_t port,
                                                   const LinkPeer& self, const LinkPeer& peer,
                                                   const Key& key, LinkEvents events) = 0;
  /// Closes everything and ends the thread; each open link is told (`cancelled`), and no event
  /// follows afterwards. Not from an event. Idempotent.
  virtual void stop() = 0;
};

}  // namespace troupe
