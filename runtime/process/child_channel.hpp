#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// One end of the socketpair between a parent and its child: carries whole messages, each
/// optionally with a descriptor attached (SCM_RIGHTS). It is the death pipe too: receive fails with
/// peer_died once the other end is gone. A message is a u32 length, a u32 that says whether a
/// descriptor is attached, and the bytes, at most `max_message_bytes`.
class ChildChannel {
 public:
  static constexpr std::size_t max_message_bytes = std::size_t{256} << 20;

  struct Message {
    std::vector<std::byte> bytes;
    UniqueFd fd;  ///< if one was attached
  };

  explicit ChildChannel(UniqueFd socket) : socket_(std::move(socket)) {}
  static Result<std::pair<UniqueFd, UniqueFd>> make_pair();

  int fd() const { return socket_.get(); }

  /// Sends or queues; never blocks. Callable from any thread. The caller must bound the queue.
  Result<void> send(std::span<const std::byte> bytes, UniqueFd attached = {});
  /// True while bytes are queued: poll for POLLOUT and call flush.
  bool wants_to_write() const;
  std::size_t queued_bytes() const;
  Result<void> flush();
  /// Waits at most `timeout_ms` until all queued bytes are sent.
  Result<void> drain(int timeout_ms);

  /// Bytes received but not yet returned as messages.
  std::size_t unread_bytes() const { return incoming_.size(); }
  /// Reads what is there without blocking and returns the whole messages, oldest first. One thread.
  Result<std::vector<Message>> receive();
  /// Waits at most `timeout_ms` for one message. One thread; not to be mixed with receive before it
  /// has returned.
  Result<Message> receive_one(int timeout_ms);

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::size_t sent = 0;
    UniqueFd fd;
  };
  Result<void> flush_locked();
  Result<void> read_more();
  bool take_message(Message& message);
  void compact();

  UniqueFd socket_;
  mutable std::mutex mutex_;
  std::deque<Outgoing> outgoing_;
  std::size_t queued_bytes_ = 0;
  std::vector<std::byte> incoming_;
  std::size_t taken_ = 0;  ///< bytes at the front of incoming_ already used, until compact()
  std::deque<UniqueFd> incoming_fds_;
};

}  // namespace troupe
