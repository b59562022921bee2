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
#include "runtime/link/port_range.hpp"

namespace troupe {

/// An authenticated, encrypted, ordered stream of frames between two processes, also of different
/// hosts: TCP and TLS 1.3 with a key of the pair (TlsContext). Functions are callable from any
/// thread.
///
/// It has no heartbeats: a stopped peer keeps its connection, however much waits for it. A host
/// that is gone is found after about 15 s, by TCP's keepalive or, while data is under way, by its
/// missing acknowledgements (LinkLimits::host_timeout). It does not reconnect.
class TlsLink {
 public:
  virtual ~TlsLink() = default;
  /// The peer that the link was made to, or that authenticated; known in LinkEvents.
  virtual const LinkPeer& peer() const = 0;
  /// Queues a frame; frames sent before on_open wait for it. If more than `max_queued_bytes` of
  /// LinkLimits would be queued it waits at most `wait` (on the thread that runs the loop not at
  /// all). Errors: resource_exhausted if there is still no room, peer_died after the link has
  /// closed, invalid_argument above `max_frame_bytes`.
  virtual Result<void> send(LinkFrame frame, std::chrono::milliseconds wait = {}) = 0;
  /// As send, but queues beyond the bound instead of waiting: for a thread that must not wait and
  /// whose frames something else bounds.
  virtual Result<void> post(LinkFrame frame) = 0;
  virtual std::size_t queued_bytes() const = 0;
  /// All bytes that it has been given to send so far. They are sent once sent_bytes(), which counts
  /// alike, has come so far.
  virtual std::uint64_t accepted_bytes() const = 0;
  virtual std::uint64_t sent_bytes() const = 0;
  /// Copies what queued frames borrow without an owner, so that it may change. On the thread that
  /// runs the loop.
  virtual void copy_borrowed() = 0;
  /// Closes at once, discarding what is queued; on_closed follows with `cancelled`.
  virtual void close() = 0;
};

/// Callbacks to the user of a link, one at a time, on the thread that runs the loop, which must not
/// block.
struct LinkEvents {
  /// Both ends have proven who they are. Comes before all other events, except the on_closed of a
  /// link of connect() that never opened.
  std::function<void(const std::shared_ptr<TlsLink>& link)> on_open;
  /// A whole frame came in. `frame` may be moved from; what is left there, or put there, is memory
  /// for a later one.
  std::function<void(const std::shared_ptr<TlsLink>& link, std::vector<std::byte>& frame)> on_frame;
  /// The link has ended. Exactly once per link of connect(), and per accepted link that has opened;
  /// strangers at a listener are not reported, but counted in its log line.
  std::function<void(const std::shared_ptr<TlsLink>& link, const Error& why)> on_closed;
};

struct LinkLimits {
  std::size_t max_frame_bytes = std::size_t{1} << 30;    ///< received or sent; below 4 GiB
  std::size_t max_queued_bytes = std::size_t{64} << 20;  ///< a single frame may be larger
  std::chrono::milliseconds handshake_timeout{5000};
  /// A host that acknowledges nothing of what is under way to it for so long is gone.
  std::chrono::milliseconds host_timeout{15000};
  /// Limit on a listener's connections that have not authenticated; above it, the oldest is
  /// dropped, silent ones first. Processes of hundreds of nodes may come at once, and a machine
  /// that is busy with as many others answers each handshake late. Never more than a quarter of the
  /// descriptors that the process may have.
  std::size_t max_strangers = 1024;
};

/// One thread (epoll) that does the I/O of all its listeners and links, unless another one does it
/// meanwhile (LinkTurn). Functions are callable from any thread.
///
/// Strangers can cost a listener little: connections are accepted at a limited rate (Acceptor); a
/// silent one costs a descriptor, one that does not begin like TLS is closed before a session is
/// made for it, and all are dropped after the handshake's timeout. Refusals are summed up in one
/// log line per ten seconds.
class LinkLoop {
 public:
  /// Returns the key of a peer that wants to connect, as link_key() makes it; empty refuses. Called
  /// on the thread that runs the loop.
  using KeyOf = std::function<std::optional<Key>(const LinkPeer& peer)>;

  static Result<std::unique_ptr<LinkLoop>> start(LinkLimits limits = {});
  virtual ~LinkLoop() = default;  ///< stops

  /// Listens at a numeric address until the loop stops, on the first free port of `ports`, which
  /// this returns. `name` begins the log lines. Errors: resource_exhausted if none is free; io.
  virtual Result<std::uint16_t> listen(const std::string& name, const std::string& address,
                                       KeyOf key_of, LinkEvents events, PortRange ports = {}) = 0;
  /// Begins to connect as `self` to `peer` and returns at once; the outcome is an event. `host` may
  /// be a name, which is looked up by this call. Errors: not_found, io.
  virtual Result<std::shared_ptr<TlsLink>> connect(const std::string& host, std::uint16_t port,
                                                   const LinkPeer& self, const LinkPeer& peer,
                                                   const Key& key, LinkEvents events) = 0;
  /// Closes everything and ends the thread; each open link gets on_closed (`cancelled`), and no
  /// event follows afterwards. Not from an event. Idempotent.
  virtual void stop() = 0;

 private:
  friend class LinkTurn;
  virtual void begin_turn() = 0;
  virtual void step(std::chrono::steady_clock::time_point until) = 0;
  virtual void end_turn() = 0;
};

/// While it lives, the thread that made it runs the loop in place of the loop's own thread: a
/// thread that has to wait for frames gets them without waking another one, and what it sends
/// leaves with its next step() or at the end. Events come in step(), in the constructor's wait for
/// the loop's thread, or at the end; the maker holds no lock that they take. Turns of several
/// threads wait for each other; one thread may nest them. Not from an event; the loop outlives it
/// and is not stopped meanwhile.
class LinkTurn {
 public:
  explicit LinkTurn(LinkLoop& loop) : loop_(loop) { loop_.begin_turn(); }
  ~LinkTurn() { loop_.end_turn(); }
  LinkTurn(const LinkTurn&) = delete;
  LinkTurn& operator=(const LinkTurn&) = delete;

  /// Sends and receives what it can at once, else waits for something to do until `until`.
  void step(std::chrono::steady_clock::time_point until) { loop_.step(until); }

 private:
  LinkLoop& loop_;
};

}  // namespace troupe
