#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include <sys/uio.h>

#include "runtime/base/deadline.hpp"
#include "runtime/call/frame_splitter.hpp"
#include "runtime/call/transport.hpp"
#include "runtime/call/unix_transport.hpp"
#include "runtime/call/unsent_links.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// One link of a UnixTransport: a queue of frames and its current socket. `send`,
/// `wait_until_sent`, `has_sent_all` and `close` are callable from any thread, everything else from
/// the transport's thread only.
class UnixLink final : public Link, public std::enable_shared_from_this<UnixLink> {
 public:
  UnixLink(const UnixTransport::Options& options, std::thread::id loop_thread,
           std::shared_ptr<UnsentLinks<UnixLink>> unsent)
      : max_frame_bytes_(options.max_frame_bytes),
        max_queued_bytes_(options.max_queued_bytes),
        loop_thread_(loop_thread),
        unsent_(std::move(unsent)) {}
  ~UnixLink() override { unsent_->remove(this); }

  Result<void> send(std::span<const std::byte> body, std::span<const std::byte> trailer,
                    std::chrono::nanoseconds wait) override;
  void close() override;

  /// Takes the socket and registers it with `epoll_fd` for reading; sends the handshake's first
  /// message. Frames wait in the queue until the handshake is over.
  Result<void> attach(UniqueFd socket, Handshake handshake, int epoll_fd);
  /// Closes the socket before the handshake is done; the queue stays for the next one.
  void detach();
  /// Reads what is there and hands whole frames to `on_frame`. An error says why the link ends.
  Result<void> on_readable(std::span<std::byte> scratch,
                           const std::function<void(Bytes&)>& on_frame);
  /// Writes queued bytes. After an error nothing more is sent, but what the peer sent before can
  /// still be read; the link ends when that is read.
  void on_writable();
  /// Closes the socket; later sends fail with `why`.
  void finish(const Error& why);
  /// Waits until all bytes queued so far are with the kernel, or the link has ended. Errors:
  /// timed_out.
  Result<void> wait_until_sent(Deadline& deadline);
  /// Whether nothing is queued, as after the end.
  bool has_sent_all() const;

  bool established() const { return established_; }
  int fd() const { return socket_.get(); }

 private:
  Result<void> on_whole_frame(Bytes& frame, const std::function<void(Bytes&)>& on_frame);
  Result<void> on_handshake_message(std::span<const std::byte> message);
  /// Sends a message of the handshake ahead of the queue; mutex_ is held.
  Result<void> write_handshake(std::span<const std::byte> message);
  /// Writes as much of `parts` as the socket takes; mutex_ is held.
  Result<std::size_t> write_now(std::span<iovec> parts);
  void flush();
  void stop_writing();
  void wait_for_writable(bool wanted);

  // Copies: calls that are not answered keep the link when its transport is gone.
  const std::size_t max_frame_bytes_, max_queued_bytes_;
  const std::thread::id loop_thread_;
  const std::shared_ptr<UnsentLinks<UnixLink>> unsent_;
  int epoll_fd_ = -1;
  std::optional<Handshake> handshake_;
  FrameSplitter splitter_{Handshake::max_message_bytes};

  mutable std::mutex mutex_;
  std::condition_variable changed_;  ///< bytes were sent, or the link has ended
  UniqueFd socket_;
  bool established_ = false;
  bool broken_ = false;  ///< nothing can be written any more
  std::optional<Error> over_;
  std::deque<Bytes> queue_;
  std::size_t queue_offset_ = 0;  ///< bytes of the front frame already sent
  std::size_t queued_bytes_ = 0;
  std::uint64_t dequeued_bytes_ = 0;  ///< count of all bytes so far
  bool waits_for_writable_ = false;
};

}  // namespace troupe
