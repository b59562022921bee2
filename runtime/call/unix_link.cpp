#include "runtime/call/unix_link.hpp"

#include <array>
#include <cerrno>

#include <sys/epoll.h>
#include <sys/socket.h>

namespace troupe {
namespace {

iovec part_of(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace

Result<void> UnixLink::attach(UniqueFd socket, Handshake handshake, int epoll_fd) {
  std::lock_guard lock(mutex_);
  epoll_fd_ = epoll_fd;
  socket_ = std::move(socket);
  handshake_.emplace(std::move(handshake));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = socket_.get();
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, socket_.get(), &event) != 0) {
    return fail_errno(errno, "cannot watch a socket");
  }
  const auto first = handshake_->first_message();
  return first.empty() ? Result<void>() : write_handshake(first);
}

void UnixLink::detach() {
  std::lock_guard lock(mutex_);
  socket_.reset();
  handshake_.reset();
  splitter_.reset();
  broken_ = false;
  waits_for_writable_ = false;
}

Result<void> UnixLink::send(std::span<const std::byte> body, std::span<const std::byte> trailer,
                            std::chrono::nanoseconds wait) {
  const std::size_t bytes = body.size() + trailer.size();
  if (bytes > max_frame_bytes_) {
    return fail(ErrorCode::invalid_argument, "a message of {} bytes exceeds the limit of {}", bytes,
                max_frame_bytes_);
  }
  std::unique_lock lock(mutex_);
  if (queued_bytes_ > max_queued_bytes_ && std::this_thread::get_id() != loop_thread_) {
    const bool room = wait_for(changed_, lock, wait,
                               [this] { return over_ || queued_bytes_ <= max_queued_bytes_; });
    if (!room) {
      return fail(ErrorCode::resource_exhausted,
                  "{} bytes are queued to its process, which does not read; the limit is {}",
                  queued_bytes_, max_queued_bytes_);
    }
  }
  if (over_) return *over_;
  auto length = static_cast<std::uint32_t>(bytes);
  const auto head = std::as_bytes(std::span(&length, 1));
  std::size_t sent = 0;
  if (queue_.empty() && established_) {
    std::array parts{part_of(head), part_of(body), part_of(trailer)};
    TROUPE_TRY(sent, write_now(parts));
    if (sent == head.size() + bytes) return {};
  }
  Bytes rest;
  rest.reserve(head.size() + bytes - sent);
  for (const auto part : {head, body, trailer}) {
    const std::size_t skipped = std::min(sent, part.size());
    sent -= skipped;
    rest.append(part.subspan(skipped));
  }
  queued_bytes_ += rest.size();
  queue_.push_back(std::move(rest));
  if (established_) wait_for_writable(true);
  lock.unlock();
  unsent_->add(*this);
  return {};
}

Result<std::size_t> UnixLink::write_now(std::span<iovec> parts) {
  if (broken_) return fail(ErrorCode::peer_died, "the peer closed the connection");
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t written = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written >= 0) return static_cast<std::size_t>(written);
  if (errno == EAGAIN || errno == EINTR) return std::size_t{0};
  const Error error = fail(ErrorCode::peer_died, "cannot send: {}", std::strerror(errno));
  stop_writing();
  return error;
}

Result<void> UnixLink::write_handshake(std::span<const std::byte> message) {
  auto length = static_cast<std::uint32_t>(message.size());
  const auto head = std::as_bytes(std::span(&length, 1));
  std::array parts{part_of(head), part_of(message)};
  TROUPE_TRY(const std::size_t sent, write_now(parts));
  if (sent == head.size() + message.size()) return {};
  return fail(ErrorCode::io, "the peer does not read the handshake");
}

void UnixLink::wait_for_writable(bool wanted) {
  if (wanted == waits_for_writable_ || !socket_) return;
  waits_for_writable_ = wanted;
  epoll_event event{};
  event.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.fd = socket_.get();
  ::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, socket_.get(), &event);
}

void UnixLink::flush() {
  while (!queue_.empty()) {
    auto& front = queue_.front();
    std::array parts{part_of(std::span(front).subspan(queue_offset_))};
    const auto written = write_now(parts);
    if (!written.ok() || *written == 0) break;
    queue_offset_ += *written;
    queued_bytes_ -= *written;
    dequeued_bytes_ += *written;
    if (queue_offset_ == front.size()) {
      queue_.pop_front();
      queue_offset_ = 0;
    }
  }
  wait_for_writable(!queue_.empty());
  changed_.notify_all();
}

void UnixLink::stop_writing() {
  broken_ = true;
  if (established_) {  // else another connection may be tried, for which the frames wait
    dequeued_bytes_ += std::exchange(queued_bytes_, 0);
    queue_.clear();
    queue_offset_ = 0;
  }
  // Whatever the error was, the link ends; reading goes on to the end of what was received.
  ::shutdown(socket_.get(), SHUT_RDWR);
  changed_.notify_all();
}

void UnixLink::on_writable() {
  std::lock_guard lock(mutex_);
  flush();
}

Result<void> UnixLink::wait_until_sent(Deadline& deadline) {
  std::unique_lock lock(mutex_);
  const std::uint64_t goal = dequeued_bytes_ + queued_bytes_;
  if (wait_until(changed_, lock, deadline, [&] { return over_ || dequeued_bytes_ >= goal; })) {
    return {};
  }
  return fail(ErrorCode::timed_out, "the peer does not read; {} bytes are queued", queued_bytes_);
}

bool UnixLink::has_sent_all() const {
  const std::lock_guard lock(mutex_);
  return queued_bytes_ == 0;
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
  changed_.notify_all();
}

Result<void> UnixLink::on_readable(std::span<std::byte> scratch,
                                   const std::function<void(Bytes&)>& on_frame) {
  const FrameSplitter::OnFrame take = [&](Bytes& frame) { return on_whole_frame(frame, on_frame); };
  constexpr int reads_per_turn = 16;  // then the other links get a turn
  for (int i = 0; i < reads_per_turn; ++i) {
    const auto room = splitter_.room(scratch);
    const ssize_t got = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return {};
      return fail(ErrorCode::peer_died, "the connection broke: {}", std::strerror(errno));
    }
    if (got == 0) return fail(ErrorCode::peer_died, "the peer closed the connection");
    const auto read = static_cast<std::size_t>(got);
    TROUPE_CHECK(splitter_.consume(room.first(read), take));
    if (room.data() == scratch.data() && read < room.size()) return {};
  }
  return {};
}

Result<void> UnixLink::on_whole_frame(Bytes& frame, const std::function<void(Bytes&)>& on_frame) {
  if (!established_) return on_handshake_message(frame);
  on_frame(frame);
  return {};
}

Result<void> UnixLink::on_handshake_message(std::span<const std::byte> message) {
  auto reply = handshake_->on_message(message);
  std::lock_guard lock(mutex_);
  if (!reply.message.empty()) {
    const auto sent = write_handshake(reply.message);
    if (!reply.refused) TROUPE_CHECK(sent);
  }
  if (reply.refused) return reply.refusal;
  if (reply.done) {
    established_ = true;
    splitter_.set_limit(max_frame_bytes_);
    flush();
  }
  return {};
}

}  // namespace troupe
