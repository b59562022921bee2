#include "runtime/node/ssh_node.hpp"

#include <cerrno>
#include <string_view>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/deadline.hpp"

namespace troupe {
namespace {

constexpr std::string_view mark = "troupe: ";
/// A copy that does not get on, and one that is being checked and unpacked there, are given up.
constexpr std::chrono::seconds patience{60};

/// A host that says more before its line is none that the start command runs on.
constexpr std::size_t most_unread = std::size_t{1} << 16;

}  // namespace

SshNode::Wait SshNode::wait_until_ready(int fd, short events,
                                        const std::optional<std::chrono::seconds>& timeout) const {
  using std::chrono::milliseconds;
  pollfd polled[] = {{given_up_, POLLIN, 0}, {fd, events, 0}, {pidfd(), POLLIN, 0}};
  Deadline deadline = deadline_in(timeout.value_or(std::chrono::hours(24)));
  while (true) {
    constexpr milliseconds turn{100};
    const int ready = ::poll(polled, 3, static_cast<int>(turn.count()));
    if (ready > 0) return polled[0].revents != 0 ? Wait::given_up : Wait::ready;
    if (ready < 0 && errno != EINTR) return Wait::ready;  // the next call says what is wrong
    if (timeout && deadline.is_over()) return Wait::timed_out;
  }
}

Result<const ProgramArchive*> ProgramSource::archive() {
  std::lock_guard lock(mutex_);
  if (!archive_) archive_ = ProgramArchive::make(beside_);
  if (!archive_->ok()) return archive_->error();
  return &**archive_;
}

Result<std::string> SshNode::next_line(const std::optional<std::chrono::seconds>& timeout) {
  while (true) {
    for (std::size_t end; (end = unread_.find('\n')) != unread_.npos;) {
      const std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      // A login shell's own output may come before.
      if (line.starts_with(mark)) return line.substr(mark.size());
    }
    if (unread_.size() > most_unread) {
      return fail(ErrorCode::io, "its shell says more than {} bytes before the agent starts",
                  most_unread);
    }
    const Wait waited = wait_until_ready(said_.get(), POLLIN, timeout);
    if (waited == Wait::given_up) return std::string();
    if (waited == Wait::timed_out) {
      return fail(ErrorCode::timed_out, "nothing was heard of the copy of the program for {} s",
                  patience.count());
    }
    char buffer[4096];
    const ssize_t got = ::read(said_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    // Nothing more comes of a client that has ended, whoever else has its stdout open.
    if (got <= 0) return std::string();
    unread_.append(buffer, static_cast<std::size_t>(got));
  }
}

Result<void> SshNode::give_ticket(int given_up) {
  given_up_ = given_up;
  TROUPE_TRY(std::string line, next_line(std::nullopt));
  if (line == "absent") {
    TROUPE_TRY(line, copy_program());
  }
  constexpr std::string_view failed = "failed: ";
  if (line.starts_with(failed)) {
    return fail(ErrorCode::io, "{}", line.substr(failed.size()));
  }
  if (line != "ready") return {};  // the client has ended: its exit code and log tell why
  std::string text = ticket_.text();
  const auto sent = client_->send(text);
  wipe(std::as_writable_bytes(std::span(text)));
  return sent;
}

Result<std::string> SshNode::copy_program() {
  if (source_ == nullptr) {
    TROUPE_CHECK(client_->send("none -\n"));
    return next_line(patience);
  }
  const ProgramSource::Copy copy(*source_);  // packing it takes a while, too
  TROUPE_TRY(const ProgramArchive* const archive, source_->archive());
  source_->total_ += archive->bytes();
  TROUPE_CHECK(client_->send(fmt::format("{} {}\n", archive->bytes(), archive->sha256())));
  TROUPE_CHECK(send_archive(*archive));
  return next_line(patience);
}

Result<void> SshNode::send_archive(const ProgramArchive& archive) {
  std::vector<std::byte> buffer(std::size_t{1} << 18);
  for (std::size_t at = 0; at < archive.bytes();) {
    TROUPE_TRY(const std::size_t size, archive.read(at, buffer.data(), buffer.size()));
    for (std::size_t done = 0; done < size;) {
      const Wait waited = wait_until_ready(client_->input(), POLLOUT, patience);
      if (waited == Wait::given_up) return {};
      if (waited == Wait::timed_out) {
        return fail(ErrorCode::timed_out,
                    "the copy of the program has not got on for {} s at {} of {} bytes",
                    patience.count(), at + done, archive.bytes());
      }
      const ssize_t sent =
          ::send(client_->input(), buffer.data() + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EAGAIN && client_->wait(std::chrono::milliseconds(0))) return {};
      if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (sent < 0) return {};  // the client has ended, or the host has: its next line tells why
      done += static_cast<std::size_t>(sent);
      source_->sent_ += static_cast<std::uint64_t>(sent);
    }
    at += size;
  }
  return {};
}

}  // namespace troupe
