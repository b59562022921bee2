#include "runtime/object/segment_server.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "runtime/base/blocking.hpp"
#include "runtime/call/unix_socket.hpp"
#include "runtime/process/acceptor.hpp"

namespace troupe {
namespace {

constexpr std::size_t max_connections = 1024;
constexpr int answer_timeout_ms = 5000;

struct Request {
  std::uint64_t segment = 0, token = 0;
};

bool send_answer(int socket, const UniqueFd& fd) {
  char is_there = fd ? 1 : 0;
  iovec part{&is_there, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = fd.get();
    std::memcpy(CMSG_DATA(header), &number, sizeof number);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

Result<UniqueFd> receive_answer(int socket) {
  pollfd polled{socket, POLLIN, 0};
  {
    const BlockingScope waits;
    if (::poll(&polled, 1, answer_timeout_ms) <= 0) {
      return fail(ErrorCode::timed_out, "the holder of an object gives no descriptor within {} ms",
                  answer_timeout_ms);
    }
  }
  char is_there = 0;
  iovec part{&is_there, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) {
    return fail(ErrorCode::peer_died, "the holder of an object has ended");
  }
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (is_there != 1 || header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    return fail(ErrorCode::not_found, "the holder has no such segment any more");
  }
  int number = -1;
  std::memcpy(&number, CMSG_DATA(header), sizeof number);
  return UniqueFd(number);
}

}  // namespace

SegmentServer::SegmentServer(UniqueFd listener, UniqueFd wake, const SegmentPool& pool)
    : listener_(std::move(listener)), wake_(std::move(wake)), pool_(pool) {
  thread_ = std::thread([this] { run(); });
}

Result<std::unique_ptr<SegmentServer>> SegmentServer::start(const std::string& name,
                                                            const SegmentPool& pool) {
  TROUPE_TRY(auto listener, listen_at(name));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno(errno, "cannot make an eventfd");
  return std::unique_ptr<SegmentServer>(
      new SegmentServer(std::move(listener), std::move(wake), pool));
}

SegmentServer::~SegmentServer() {
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void SegmentServer::run() {
  Acceptor acceptor(std::move(listener_));
  std::vector<UniqueFd> sockets;
  while (true) {
    const auto now = Acceptor::Clock::now();
    std::vector<pollfd> polled{{wake_.get(), POLLIN, 0},
                               {acceptor.rests(now) ? -1 : acceptor.fd(), POLLIN, 0}};
    for (const auto& socket : sockets) polled.push_back({socket.get(), POLLIN, 0});
    ::poll(polled.data(), polled.size(), acceptor.rests(now) ? 100 : -1);
    if (polled[0].revents != 0) return;
    for (std::size_t i = polled.size(); i-- > 2;) {
      if (polled[i].revents == 0) continue;
      if (answer(sockets[i - 2].get())) continue;
      sockets[i - 2] = std::move(sockets.back());
      sockets.pop_back();
    }
    if (polled[1].revents == 0) continue;
    while (UniqueFd socket = acceptor.accept(Acceptor::Clock::now())) {
      if (sockets.size() >= max_connections || !check_peer_uid(socket.get()).ok()) continue;
      sockets.push_back(std::move(socket));
    }
  }
}

bool SegmentServer::answer(int socket) {
  Request request;
  const auto got = ::recv(socket, &request, sizeof request, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got != sizeof request) return false;
  return send_answer(socket, pool_.open(request.segment, request.token));
}

Result<UniqueFd> SegmentClient::open(const std::string& server, std::uint64_t segment,
                                     std::uint64_t token) {
  std::shared_ptr<Connection> connection;
  {
    const std::lock_guard lock(mutex_);
    auto& found = connections_[server];
    if (!found) found = std::make_shared<Connection>();
    connection = found;
  }
  const std::lock_guard lock(connection->mutex);
  if (!connection->socket) {
    TROUPE_TRY(connection->socket, connect_to(server));
  }
  const Request request{segment, token};
  if (::send(connection->socket.get(), &request, sizeof request, MSG_NOSIGNAL) != sizeof request) {
    connection->socket.reset();
    return fail(ErrorCode::peer_died, "the holder of an object has ended");
  }
  auto fd = receive_answer(connection->socket.get());
  if (!fd.ok() && fd.error().code != ErrorCode::not_found) connection->socket.reset();
  return fd;
}

void SegmentClient::forget(const std::string& server) {
  const std::lock_guard lock(mutex_);
  connections_.erase(server);
}

}  // namespace troupe
