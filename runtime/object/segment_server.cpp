#include "runtime/object/segment_server.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <type_traits>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "runtime/base/blocking.hpp"
#include "runtime/call/unix_socket.hpp"
#include "runtime/process/acceptor.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {
namespace {

constexpr std::size_t max_connections = 1024;
constexpr std::chrono::milliseconds max_patience{5000};

static_assert(std::is_trivially_copyable_v<SegmentAsk>);

/// Comes with the descriptor, if `is_given`.
struct SegmentAnswer {
  std::uint64_t is_given = 0;
  std::uint64_t bytes = 0;
};

bool send_answer(int socket, int fd, std::uint64_t bytes) {
  SegmentAnswer answer{fd >= 0 ? 1U : 0U, bytes};
  iovec part{&answer, sizeof answer};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof answer;
}

Result<SegmentClient::Given> receive_answer(int socket) {
  SegmentAnswer answer;
  iovec part{&answer, sizeof answer};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  {
    const BlockingScope waits;
    do {
      got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
    } while (got < 0 && errno == EINTR);
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return fail(ErrorCode::timed_out, "the holder of an object gives no descriptor in time");
  }
  if (got != sizeof answer) {
    return fail(ErrorCode::peer_died, "the holder of an object has ended");
  }
  if (answer.is_given == 0) {
    return fail(ErrorCode::not_found, "the holder has no such segment any more");
  }
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    return fail(
        ErrorCode::io,
        "this process cannot take the descriptor of an object: it has too many open (ulimit "
        "-n)");
  }
  SegmentClient::Given given{.bytes = answer.bytes};
  int number = -1;
  std::memcpy(&number, CMSG_DATA(header), sizeof number);
  given.fd = UniqueFd(number);
  return given;
}

}  // namespace

SegmentServer::SegmentServer(std::string name, UniqueFd listener, UniqueFd wake,
                             std::uint64_t token, const SegmentPool& pool, Store store)
    : name_(std::move(name)),
      token_(token),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      pool_(pool),
      store_(std::move(store)) {
  thread_ = std::thread([this] { run(); });
}

Result<std::unique_ptr<SegmentServer>> SegmentServer::start(const std::string& name,
                                                            const SegmentPool& pool, Store store) {
  TROUPE_TRY(auto listener, listen_at(name));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno(errno, "cannot make an eventfd");
  std::uint64_t token = 0;
  TROUPE_CHECK(random_bytes(std::as_writable_bytes(std::span(&token, 1))));
  return std::unique_ptr<SegmentServer>(
      new SegmentServer(name, std::move(listener), std::move(wake), token, pool, std::move(store)));
}

SegmentServer::~SegmentServer() {
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void SegmentServer::run() {
  Acceptor acceptor(std::move(listener_));
  std::vector<pollfd> polled;
  while (true) {
    const auto now = Acceptor::Clock::now();
    polled.assign(
        {{wake_.get(), POLLIN, 0}, {acceptor.rests(now) ? -1 : acceptor.fd(), POLLIN, 0}});
    for (const auto& reader : readers_) polled.push_back({reader.socket.get(), POLLIN, 0});
    ::poll(polled.data(), polled.size(), acceptor.rests(now) ? 100 : -1);
    if (polled[0].revents != 0) return;
    for (std::size_t i = polled.size(); i-- > 2;) {
      if (polled[i].revents == 0) continue;
      Reader& reader = readers_[i - 2];
      reader.asked = ++last_ask_;
      if (answer(reader.socket.get())) continue;
      reader = std::move(readers_.back());
      readers_.pop_back();
    }
    if (polled[1].revents == 0) continue;
    while (UniqueFd socket = acceptor.accept(Acceptor::Clock::now())) {
      if (check_peer_uid(socket.get()).ok()) add_reader(std::move(socket));
    }
  }
}

void SegmentServer::add_reader(UniqueFd socket) {
  Reader reader{std::move(socket), ++last_ask_};
  if (readers_.size() < max_connections) {
    readers_.push_back(std::move(reader));
  } else {
    *std::ranges::min_element(readers_, {}, &Reader::asked) = std::move(reader);
  }
}

bool SegmentServer::answer(int socket) {
  SegmentAsk ask;
  const auto got = ::recv(socket, &ask, sizeof ask, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got != sizeof ask) return false;
  if (ask.token != token_) return send_answer(socket, -1, 0);
  if (ask.segment != 0) {
    const UniqueFd fd = pool_.open(ask.segment);
    return send_answer(socket, fd ? fd.get() : -1, 0);
  }
  const auto pinned = store_.pin(ask);
  if (!pinned) return send_answer(socket, -1, 0);
  if (send_answer(socket, pinned->segment->fd(), pinned->bytes)) return true;
  store_.unpin(ask);
  return false;
}

class SegmentClient::Turn {
 public:
  /// Waits until no other thread uses the connection; has_come() is false if that takes too long.
  Turn(Connection& connection, Deadline& deadline) : connection_(connection) {
    std::unique_lock lock(connection.mutex);
    has_come_ = wait_until(connection.changed, lock, deadline, [&] { return !connection.is_used; });
    if (has_come_) connection.is_used = true;
  }
  ~Turn() {
    if (!has_come_) return;
    const std::lock_guard lock(connection_.mutex);
    connection_.is_used = false;
    connection_.changed.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool has_come() const { return has_come_; }

 private:
  Connection& connection_;
  bool has_come_ = false;
};

Result<SegmentClient::Given> SegmentClient::ask(const std::string& server, const SegmentAsk& ask,
                                                Deadline& deadline) {
  std::shared_ptr<Connection> connection;
  {
    const std::lock_guard lock(mutex_);
    auto& found = connections_[server];
    if (!found) found = std::make_shared<Connection>();
    connection = found;
  }
  const Turn turn(*connection, deadline);
  if (!turn.has_come()) {
    return fail(ErrorCode::timed_out, "other threads wait for the holder of an object");
  }
  if (connection->socket) {
    auto given = ask_on(*connection, ask, deadline);
    // The server has ended an old connection if it has many readers.
    if (given.ok() || given.error().code != ErrorCode::peer_died) return given;
  }
  TROUPE_CHECK(connect(*connection, server));
  return ask_on(*connection, ask, deadline);
}

/// For receive_answer, which waits in the kernel.
Result<void> SegmentClient::connect(Connection& connection, const std::string& server) {
  TROUPE_TRY(UniqueFd socket, connect_to(server));
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return fail_errno(errno, "cannot set up a socket");
  }
  connection.socket = std::move(socket);
  connection.patience = {};
  return {};
}

Result<SegmentClient::Given> SegmentClient::ask_on(Connection& connection, const SegmentAsk& ask,
                                                   Deadline& deadline) {
  if (::send(connection.socket.get(), &ask, sizeof ask, MSG_NOSIGNAL) != sizeof ask) {
    connection.socket.reset();
    return fail(ErrorCode::peer_died, "the holder of an object has ended");
  }
  Deadline longest(max_patience);
  Result<Given> given = fail(ErrorCode::timed_out, "the time is over");
  do {
    if (!set_patience(connection, deadline)) return fail_errno(errno, "cannot set up a socket");
    given = receive_answer(connection.socket.get());
  } while (!given.ok() && given.error().code == ErrorCode::timed_out && !deadline.is_over() &&
           !longest.is_over());
  const bool is_in_step = given.ok() || given.error().code == ErrorCode::not_found ||
                          given.error().code == ErrorCode::io;
  if (!is_in_step) connection.socket.reset();
  return given;
}

/// So long one receive_answer waits: no longer than until the deadline's next look.
bool SegmentClient::set_patience(Connection& connection, Deadline& deadline) {
  using std::chrono::milliseconds;
  const auto patience = std::clamp<milliseconds>(std::chrono::ceil<milliseconds>(deadline.left()),
                                                 milliseconds(1), Deadline::slice);
  if (patience == connection.patience) return true;
  const timeval limit{.tv_sec = 0, .tv_usec = patience.count() * 1000};
  if (::setsockopt(connection.socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0) {
    return false;
  }
  connection.patience = patience;
  return true;
}

void SegmentClient::forget(const std::string& server) {
  const std::lock_guard lock(mutex_);
  connections_.erase(server);
}

}  // namespace troupe
