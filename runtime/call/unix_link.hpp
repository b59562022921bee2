#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/call/transport.hpp"
#include "runtime/call/unix_transport.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// One socket of a UnixTransport. `send` and `close` are callable from any thread, everything else
/// from the transport's thread only.
class UnixLink final : public Link {
 public:
  UnixLink(const UnixTransport::Options& options, Handshake handshake, std::thread::id loop_thread)
      : options_(options), handshake_(std::move(handshake)), loop_thread_(loop_thread) {}

  Result<void> send(std::span<const std::byte> body, std::span<const std::byte> trailer) override;
  void close() override;

  /// Takes the socket and registers it with `epoll_fd` for reading; sends the handshake's first
  /// message.
  Result<void> attach(UniqueFd socket, int epoll_fd);
  /// Reads what is there and hands whole frames to `on_frame`. An error says why the link is over.
  Result<void> on_readable(std::span<std::byte> scratch,
                           const std::function<void(Bytes&)>& on_frame);
  /// Writes queued bytes. An error says why the link is over.
  Result<void> on_writable();
  /// Closes the socket; later sends fail with `why`.
  void finish(const Error& why);

  bool established() const { return established_; }
  int fd() const { return socket_.get(); }

 private:
  Result<void> consume(std::span<const std::byte> bytes,
                       const std::function<void(Bytes&)>& on_frame);
  Result<void> on_whole_frame(const std::function<void(Bytes&)>& on_frame);
  Result<void> on_handshake_frame();
  enum class Purpose { handshake, frame };  ///< frames wait until the handshake is over
  /// Writes or queues length, body and trailer; mutex_ is held.
  Result<void> write_frame(Purpose purpose, std::span<const std::byte> body,
                           std::span<const std::byte> trailer);
  Result<void> flush();
  void wait_for_writable(bool wanted);

  const UnixTransport::Options& options_;
  Handshake handshake_;
  const std::thread::id loop_thread_;
  int epoll_fd_ = -1;

  // Reading; the transport's thread only.
  std::array<std::byte, 4> length_{};
  std::size_t length_filled_ = 0;
  Bytes frame_;
  std::size_t frame_filled_ = 0;

  std::mutex mutex_;
  std::condition_variable room_;
  UniqueFd socket_;
  bool established_ = false;
  std::optional<Error> over_;
  std::deque<Bytes> queue_;
  std::size_t queue_offset_ = 0;  ///< bytes of the front that are sent already
  std::size_t queued_bytes_ = 0;
  bool waits_for_writable_ = false;
};

}  // namespace troupe
