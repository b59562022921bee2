#pragma once

#include <condition_variable>
#include <mutex>

#include "runtime/link/link.hpp"
#include "runtime/link/tls_session.hpp"
#include "runtime/link/unacknowledged_time.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// One TLS connection of a LinkLoop, open or being opened. send, queued_bytes and close are
/// callable from any thread, everything else from the one that runs the loop.
class Connection final : public TlsLink, public std::enable_shared_from_this<Connection> {
 public:
  /// What the connection asks of the loop; callable from any thread, at any time.
  struct Requests {
    std::function<bool()> runs_here;  ///< true on the thread that runs the loop
    std::function<void(std::shared_ptr<Connection>)> flush;  ///< calls write soon
    std::function<void(std::shared_ptr<Connection>)> close;
  };

  /// `peer`: the process it connects to; empty at a listener.
  Connection(const LinkLimits& limits, Requests requests, std::shared_ptr<const LinkEvents> events,
             LinkPeer peer)
      : limits_(limits),
        requests_(std::move(requests)),
        events_(std::move(events)),
        peer_(std::move(peer)),
        is_accepted_(peer_.role.empty()),
        reader_(limits.max_frame_bytes) {}

  const LinkPeer& peer() const override { return peer_; }
  Result<void> send(LinkFrame frame, std::chrono::milliseconds wait) override;
  Result<void> post(LinkFrame frame) override;
  std::size_t queued_bytes() const override;
  std::uint64_t accepted_bytes() const override;
  std::uint64_t sent_bytes() const override;
  void copy_borrowed() override;
  void close() override { requests_.close(shared_from_this()); }

  /// Takes a socket that is connected or connecting, and the session on it.
  void attach(UniqueFd socket, std::unique_ptr<TlsSession> session);
  /// Called when the socket may be ready: does as much as it can without waiting. True if it could
  /// go on at once but has used up its turn. An error says why the link ended.
  Result<bool> on_ready();
  /// The same for queued frames alone; once the link is open.
  Result<bool> write();
  /// Closes the socket, makes later sends fail with `why` and reports it to the user, if there is
  /// one.
  void finish(const Error& why);

  int fd() const { return socket_.get(); }
  bool is_open() const { return open_; }
  bool wants_to_write();
  /// See UnacknowledgedTime.
  std::optional<std::chrono::milliseconds> unacknowledged(
      std::chrono::steady_clock::time_point now) {
    return unacknowledged_.look(socket_.get(), now);
  }

 private:
  Result<void> check_size(const LinkFrame& frame) const;
  /// `lock` holds mutex_, and is given up.
  Result<void> push(LinkFrame frame, std::unique_lock<std::mutex>& lock);
  Result<void> open_if_proven();
  Result<bool> read();

  const LinkLimits limits_;  ///< a copy: users may hold a link for longer than its loop
  const Requests requests_;
  const std::shared_ptr<const LinkEvents> events_;
  LinkPeer peer_;
  const bool is_accepted_;
  UniqueFd socket_;
  std::unique_ptr<TlsSession> session_;
  FrameReader reader_;
  UnacknowledgedTime unacknowledged_;
  bool open_ = false;

  mutable std::mutex mutex_;
  std::condition_variable room_;
  FrameQueue queue_;
  bool flush_asked_ = false;
  std::optional<Error> over_;
};

}  // namespace troupe
