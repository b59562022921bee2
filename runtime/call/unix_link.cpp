#include "runtime/call/unix_link.hpp"

#include <cerrno>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace troupe {

Result<void> UnixLink::attach(UniqueFd socket, int epoll_fd) {
  std::lock_guard lock(mutex_);
  epoll_fd_ = epoll_fd;
  socket_ = std::move(socket);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = socket_.get();
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, socket_.get(), &event) != 0) {
    return fail_errno(errno, "cannot watch a socket");
  }
  if (const auto first = handshake_.first_message(); !first.empty()) {
    // The handshake goes before frames that callers have queued already.
    std::deque<Bytes> later = std::exchange(queue_, {});
    const std::size_t later_bytes = std::exchange(queued_bytes_, 0);
    TROUPE_CHECK(write_frame(Purpose::handshake, first, {}));
    for (auto& bytes : later) queue_.push_back(std::move(bytes));
    queued_bytes_ += later_bytes;
  }
  return {};
}

Result<void> UnixLink::send(std::span<const std::byte> body, std::span<const std::byte> trailer) {
  if (body.size() + trailer.size() > options_.max_frame_bytes) {
    return fail(ErrorCode::invalid_argument, "a message of {} bytes exceeds the limit of {}",
                body.size() + trailer.size(), options_.max_frame_bytes);
  }
  std::unique_lock lock(mutex_);
  if (queued_bytes_ > options_.max_queued_bytes && std::this_thread::get_id() != loop_thread_) {
    const bool room = room_.wait_for(lock, options_.send_timeout, [this] {
      return over_ || queued_bytes_ <= options_.max_queued_bytes;
    });
    if (!room) {
      return fail(ErrorCode::timeout, "the peer has not read for {} ms and {} bytes are queued",
                  options_.send_timeout.count(), queued_bytes_);
    }
  }
  if (over_) return *over_;
  return write_frame(Purpose::frame, body, trailer);
}

Result<void> UnixLink::write_frame(Purpose purpose, std::span<const std::byte> body,
                                   std::span<const std::byte> trailer) {
  auto length = static_cast<std::uint32_t>(body.size() + trailer.size());
  std::size_t sent = 0;
  if (queue_.empty() && socket_ && (established_ || purpose == Purpose::handshake)) {
    iovec parts[3] = {{&length, sizeof length},
                      {const_cast<std::byte*>(body.data()), body.size()},
                      {const_cast<std::byte*>(trailer.data()), trailer.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 3;
    const ssize_t written = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0 && errno != EAGAIN && errno != EINTR) {
      return fail(ErrorCode::peer_died, "cannot send: {}", std::strerror(errno));
    }
    sent = written < 0 ? 0 : static_cast<std::size_t>(written);
  }
  const std::size_t total = sizeof length + body.size() + trailer.size();
  if (sent == total) return {};
  Bytes rest;
  rest.reserve(total - sent);
  for (auto part : {std::as_bytes(std::span(&length, 1)), body, trailer}) {
    const std::size_t skipped = std::min(sent, part.size());
    sent -= skipped;
    rest.insert(rest.end(), part.begin() + static_cast<std::ptrdiff_t>(skipped), part.end());
  }
  queued_bytes_ += rest.size();
  queue_.push_back(std::move(rest));
  if (established_) wait_for_writable(true);
  return {};
}

void UnixLink::wait_for_writable(bool wanted) {
  if (wanted == waits_for_writable_ || !socket_) return;
  waits_for_writable_ = wanted;
  epoll_event event{};
  event.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.fd = socket_.get();
  ::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, socket_.get(), &event);
}

Result<void> UnixLink::flush() {
  while (!queue_.empty()) {
    auto& front = queue_.front();
    const ssize_t written = ::send(socket_.get(), front.data() + queue_offset_,
                                   front.size() - queue_offset_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) break;
      return fail(ErrorCode::peer_died, "cannot send: {}", std::strerror(errno));
    }
    queue_offset_ += static_cast<std::size_t>(written);
    queued_bytes_ -= static_cast<std::size_t>(written);
    if (queue_offset_ == front.size()) {
      queue_.pop_front();
      queue_offset_ = 0;
    }
  }
  wait_for_writable(!queue_.empty());
  if (queued_bytes_ <= options_.max_queued_bytes) room_.notify_all();
  return {};
}

Result<void> UnixLink::on_writable() {
  std::lock_guard lock(mutex_);
  return flush();
}

void UnixLink::close() {
  std::lock_guard lock(mutex_);
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
}

void UnixLink::finish(const Error& why) {
  std::lock_guard lock(mutex_);
  over_ = why;
  socket_.reset();
  queue_.clear();
  queued_bytes_ = 0;
  room_.notify_all();
}

Result<void> UnixLink::on_readable(std::span<std::byte> scratch,
                                   const std::function<void(Bytes&)>& on_frame) {
  constexpr int reads_per_turn = 16;  // then the other links have theirs
  for (int i = 0; i < reads_per_turn; ++i) {
    const std::size_t missing = frame_.size() - frame_filled_;
    const bool direct = missing >= scratch.size();
    std::byte* into = direct ? frame_.data() + frame_filled_ : scratch.data();
    const std::size_t room = direct ? missing : scratch.size();
    const ssize_t got = ::recv(socket_.get(), into, room, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return {};
      return fail(ErrorCode::peer_died, "the connection broke: {}", std::strerror(errno));
    }
    if (got == 0) return fail(ErrorCode::peer_died, "the peer closed the connection");
    if (direct) {
      frame_filled_ += static_cast<std::size_t>(got);
      if (frame_filled_ == frame_.size()) TROUPE_CHECK(on_whole_frame(on_frame));
    } else {
      TROUPE_CHECK(consume(scratch.first(static_cast<std::size_t>(got)), on_frame));
      if (static_cast<std::size_t>(got) < scratch.size()) return {};
    }
  }
  return {};
}

Result<void> UnixLink::consume(std::span<const std::byte> bytes,
                               const std::function<void(Bytes&)>& on_frame) {
  while (!bytes.empty()) {
    if (length_filled_ < length_.size()) {
      const std::size_t taken = std::min(length_.size() - length_filled_, bytes.size());
      std::memcpy(length_.data() + length_filled_, bytes.data(), taken);
      length_filled_ += taken;
      bytes = bytes.subspan(taken);
      if (length_filled_ < length_.size()) return {};
      std::uint32_t length = 0;
      std::memcpy(&length, length_.data(), sizeof length);
      const std::size_t limit =
          established_ ? options_.max_frame_bytes : Handshake::max_message_bytes;
      if (length == 0 || length > limit) {
        return fail(ErrorCode::corrupt_data, "a frame of {} bytes (the limit is {})", length,
                    limit);
      }
      frame_.resize(length);
      frame_filled_ = 0;
    }
    const std::size_t taken = std::min(frame_.size() - frame_filled_, bytes.size());
    std::memcpy(frame_.data() + frame_filled_, bytes.data(), taken);
    frame_filled_ += taken;
    bytes = bytes.subspan(taken);
    if (frame_filled_ == frame_.size()) TROUPE_CHECK(on_whole_frame(on_frame));
  }
  return {};
}

Result<void> UnixLink::on_whole_frame(const std::function<void(Bytes&)>& on_frame) {
  length_filled_ = 0;
  frame_filled_ = 0;
  if (established_) {
    on_frame(frame_);
    frame_.clear();
    return {};
  }
  auto outcome = on_handshake_frame();
  frame_.clear();
  return outcome;
}

Result<void> UnixLink::on_handshake_frame() {
  auto reply = handshake_.on_message(frame_);
  std::lock_guard lock(mutex_);
  if (!reply.message.empty()) {
    std::deque<Bytes> later = std::exchange(queue_, {});
    const auto sent = write_frame(Purpose::handshake, reply.message, {});
    if (!queue_.empty()) return fail(ErrorCode::io, "the peer does not read the handshake");
    queue_ = std::move(later);
    if (!reply.refused) TROUPE_CHECK(sent);
  }
  if (reply.refused) return reply.refusal;
  if (reply.done) {
    established_ = true;
    return flush();
  }
  return {};
}

}  // namespace troupe
