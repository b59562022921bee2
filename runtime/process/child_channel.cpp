#include "runtime/process/child_channel.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "runtime/base/deadline.hpp"

namespace troupe {
namespace {

struct Header {
  std::uint32_t length;
  std::uint32_t has_fd;
};

/// How long to poll at most before the next look at the deadline.
int milliseconds_to_look(Deadline& deadline) {
  const auto wait = deadline.next_look() - Deadline::Clock::now();
  const auto count = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  return static_cast<int>(std::max<std::int64_t>(0, count));
}

}  // namespace

Result<std::pair<UniqueFd, UniqueFd>> ChildChannel::make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail_errno(errno, "cannot make a socketpair");
  }
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

Result<void> ChildChannel::send(std::span<const std::byte> bytes, UniqueFd attached) {
  if (bytes.size() > max_message_bytes) {
    return fail(ErrorCode::invalid_argument, "a control message of {} bytes (the limit is {})",
                bytes.size(), max_message_bytes);
  }
  const Header header{static_cast<std::uint32_t>(bytes.size()), attached ? 1U : 0U};
  Outgoing out;
  out.bytes.resize(sizeof header + bytes.size());
  std::memcpy(out.bytes.data(), &header, sizeof header);
  if (!bytes.empty()) std::memcpy(out.bytes.data() + sizeof header, bytes.data(), bytes.size());
  out.fd = std::move(attached);
  std::lock_guard lock(mutex_);
  queued_bytes_ += out.bytes.size();
  outgoing_.push_back(std::move(out));
  return flush_locked();
}

bool ChildChannel::wants_to_write() const {
  std::lock_guard lock(mutex_);
  return !outgoing_.empty();
}

std::size_t ChildChannel::queued_bytes() const {
  std::lock_guard lock(mutex_);
  return queued_bytes_;
}

Result<void> ChildChannel::flush() {
  std::lock_guard lock(mutex_);
  return flush_locked();
}

Result<void> ChildChannel::flush_locked() {
  while (!outgoing_.empty()) {
    auto& front = outgoing_.front();
    iovec part{front.bytes.data() + front.sent, front.bytes.size() - front.sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (front.fd && front.sent == 0) {  // the descriptor goes with the first byte
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      const int fd = front.fd.get();
      std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    const ssize_t written = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return {};
      return fail(ErrorCode::peer_died, "cannot send to the other process: {}",
                  std::strerror(errno));
    }
    front.sent += static_cast<std::size_t>(written);
    queued_bytes_ -= static_cast<std::size_t>(written);
    if (front.sent < front.bytes.size()) continue;
    ::explicit_bzero(front.bytes.data(), front.bytes.size());
    outgoing_.pop_front();
  }
  return {};
}

Result<void> ChildChannel::drain(int timeout_ms) {
  Deadline deadline{std::chrono::milliseconds(timeout_ms)};
  while (true) {
    TROUPE_CHECK(flush());
    if (!wants_to_write()) return {};
    if (deadline.is_over()) return fail(ErrorCode::timed_out, "the other process does not read");
    pollfd writable{socket_.get(), POLLOUT, 0};
    ::poll(&writable, 1, milliseconds_to_look(deadline));
  }
}

Result<void> ChildChannel::read_more() {
  std::byte buffer[65536];
  iovec part{buffer, sizeof buffer};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) {
    if (errno == EAGAIN || errno == EINTR) return {};
    return fail(ErrorCode::peer_died, "the other process is gone: {}", std::strerror(errno));
  }
  if (got == 0) return fail(ErrorCode::peer_died, "the other process is gone");
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr;
       part_of = CMSG_NXTHDR(&message, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part_of) + i * sizeof fd, sizeof fd);
      incoming_fds_.emplace_back(fd);
    }
  }
  incoming_.insert(incoming_.end(), buffer, buffer + got);
  ::explicit_bzero(buffer, static_cast<std::size_t>(got));
  return {};
}

bool ChildChannel::take_message(Message& message) {
  Header header;
  if (incoming_.size() - taken_ < sizeof header) return false;
  std::memcpy(&header, incoming_.data() + taken_, sizeof header);
  if (incoming_.size() - taken_ - sizeof header < header.length) return false;
  const auto* body = incoming_.data() + taken_ + sizeof header;
  message.bytes.assign(body, body + header.length);
  ::explicit_bzero(incoming_.data() + taken_ + sizeof header, header.length);
  message.fd.reset();
  if (header.has_fd != 0 && !incoming_fds_.empty()) {
    message.fd = std::move(incoming_fds_.front());
    incoming_fds_.pop_front();
  }
  taken_ += sizeof header + header.length;
  return true;
}

void ChildChannel::compact() {
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
}

Result<std::vector<ChildChannel::Message>> ChildChannel::receive() {
  const auto read = read_more();
  std::vector<Message> messages;
  Message message;
  while (take_message(message)) messages.push_back(std::move(message));
  compact();
  if (!read.ok() && messages.empty()) return read.error();
  return messages;
}

Result<ChildChannel::Message> ChildChannel::receive_one(int timeout_ms) {
  Deadline deadline{std::chrono::milliseconds(timeout_ms)};
  Message message;
  while (!take_message(message)) {
    if (deadline.is_over())
      return fail(ErrorCode::timed_out, "no message within {} ms", timeout_ms);
    pollfd readable{socket_.get(), POLLIN, 0};
    if (::poll(&readable, 1, milliseconds_to_look(deadline)) > 0) TROUPE_CHECK(read_more());
  }
  return message;
}

}  // namespace troupe
