#include "runtime/link/connection.hpp"

#include "runtime/base/deadline.hpp"

namespace troupe {
namespace {

/// The most that one connection may read or write while others wait.
constexpr std::size_t turn_bytes = std::size_t{1} << 20;

}  // namespace

Result<void> Connection::send(LinkFrame frame, std::chrono::milliseconds wait) {
  TROUPE_CHECK(check_size(frame));
  const std::size_t bytes = frame.size();
  std::unique_lock lock(mutex_);
  const auto has_room = [&] {
    return over_ || queue_.empty() || queue_.queued_bytes() + bytes <= limits_.max_queued_bytes;
  };
  const bool may_wait = !requests_.runs_here();
  if (!has_room() && (!may_wait || !wait_for(room_, lock, wait, has_room))) {
    return fail(ErrorCode::resource_exhausted, "{} bytes are queued to {}, which is the limit",
                queue_.queued_bytes(), peer_.text());
  }
  return push(std::move(frame), lock);
}

Result<void> Connection::post(LinkFrame frame) {
  TROUPE_CHECK(check_size(frame));
  std::unique_lock lock(mutex_);
  return push(std::move(frame), lock);
}

Result<void> Connection::check_size(const LinkFrame& frame) const {
  if (frame.size() <= limits_.max_frame_bytes) return {};
  return fail(ErrorCode::invalid_argument, "a frame of {} bytes to {}, the limit is {}",
              frame.size(), peer_.text(), limits_.max_frame_bytes);
}

Result<void> Connection::push(LinkFrame frame, std::unique_lock<std::mutex>& lock) {
  if (over_) return fail(ErrorCode::peer_died, "the link is over: {}", over_->message);
  queue_.push(std::move(frame));
  if (std::exchange(flush_asked_, true)) return {};
  lock.unlock();
  requests_.flush(shared_from_this());
  return {};
}

void Connection::copy_borrowed() {
  std::lock_guard lock(mutex_);
  queue_.copy_borrowed();
}

std::size_t Connection::queued_bytes() const {
  std::lock_guard lock(mutex_);
  return queue_.queued_bytes();
}

std::uint64_t Connection::accepted_bytes() const {
  std::lock_guard lock(mutex_);
  return queue_.sent_bytes() + queue_.queued_bytes();
}

std::uint64_t Connection::sent_bytes() const {
  std::lock_guard lock(mutex_);
  return queue_.sent_bytes();
}

void Connection::attach(UniqueFd socket, std::unique_ptr<TlsSession> session) {
  socket_ = std::move(socket);
  session_ = std::move(session);
}

bool Connection::wants_to_write() {
  if (!session_) return false;
  if (session_->wants_write()) return true;
  std::lock_guard lock(mutex_);
  return open_ && !queue_.empty();
}

Result<void> Connection::open_if_proven() {
  TROUPE_TRY(const bool proven, session_->handshake());
  if (!proven) return {};
  if (is_accepted_) {
    TROUPE_TRY(peer_, LinkPeer::parse(session_->identity()));
  }
  open_ = true;
  if (events_->on_open) events_->on_open(shared_from_this());
  return {};
}

Result<bool> Connection::on_ready() {
  if (!session_) return false;
  if (!open_) {
    TROUPE_CHECK(open_if_proven());
    if (!open_) return false;
  }
  TROUPE_TRY(const bool more_to_read, read());
  TROUPE_TRY(const bool more_to_write, write());
  return more_to_read || more_to_write;
}

Result<bool> Connection::read() {
  std::size_t turn = 0;
  std::vector<std::byte> frame;
  while (turn < turn_bytes) {
    TROUPE_TRY(const std::size_t count, session_->read(reader_.room()));
    if (count == 0) return false;
    turn += count;
    TROUPE_CHECK(reader_.filled(count));
    if (reader_.take(frame)) events_->on_frame(shared_from_this(), frame);
  }
  return true;
}

Result<bool> Connection::write() {
  std::size_t turn = 0;
  std::unique_lock lock(mutex_);
  flush_asked_ = false;
  while (turn < turn_bytes) {
    const auto bytes = queue_.front();
    if (bytes.empty()) return false;
    const bool more_follows = queue_.queued_bytes() > bytes.size();
    lock.unlock();  // encrypting takes time; the bytes do not move meanwhile
    TROUPE_TRY(const std::size_t count, session_->write(bytes, more_follows));
    lock.lock();
    if (count == 0) return false;
    turn += count;
    queue_.sent(count);
    room_.notify_all();
  }
  return true;
}

void Connection::finish(const Error& why) {
  {
    std::lock_guard lock(mutex_);
    if (over_) return;
    over_ = why;
    room_.notify_all();
  }
  if (open_) session_->say_goodbye();
  session_.reset();
  socket_.reset();
  if ((open_ || !is_accepted_) && events_->on_closed) events_->on_closed(shared_from_this(), why);
}

}  // namespace troupe
