#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// A plain TCP connection, the yardstick for what runs over sockets. One end listens at an address
/// and accepts, the other connects to its port. Blocking, for 30 s at most; false on any error.
class TcpPair {
 public:
  /// The port, or 0.
  std::uint16_t listen(const char* at = "127.0.0.1") {
    sockaddr_in address = address_of(at, 0);
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM, 0));
    socklen_t size = sizeof(address);
    if (!bounded(listener_) ||
        ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listener_.get(), 1) != 0 ||
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      return 0;
    }
    return ntohs(address.sin_port);
  }
  bool accept() {
    socket_ = UniqueFd(::accept(listener_.get(), nullptr, nullptr));
    return at_once();
  }
  bool connect(std::uint16_t port, const char* to = "127.0.0.1") {
    const sockaddr_in address = address_of(to, port);
    socket_ = UniqueFd(::socket(AF_INET, SOCK_STREAM, 0));
    return bounded(socket_) &&
           ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
               0 &&
           at_once();
  }

  bool send(const void* data, std::size_t bytes) const {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t done = ::send(socket_.get(), from, bytes, MSG_NOSIGNAL);
      if (done <= 0) return false;
      from += done;
      bytes -= static_cast<std::size_t>(done);
    }
    return true;
  }
  bool receive(void* data, std::size_t bytes) const {
    return bytes == 0 ||
           ::recv(socket_.get(), data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }
  /// Sends and receives `bytes` at once, as both ends of an all-reduce or all-to-all do.
  bool exchange(const void* data, void* room, std::size_t bytes) const {
    const auto* from = static_cast<const char*>(data);
    auto* to = static_cast<char*>(room);
    std::size_t unsent = bytes, missing = bytes;
    while (unsent > 0 || missing > 0) {
      pollfd ready{socket_.get(), static_cast<short>(unsent > 0 ? POLLIN | POLLOUT : POLLIN), 0};
      if (::poll(&ready, 1, 30'000) != 1) return false;
      if ((ready.revents & POLLOUT) != 0 && unsent > 0) {
        const ssize_t done = ::send(socket_.get(), from, unsent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0 && errno != EAGAIN) return false;
        from += std::max<ssize_t>(done, 0);
        unsent -= static_cast<std::size_t>(std::max<ssize_t>(done, 0));
      }
      if ((ready.revents & ~POLLOUT) != 0 && missing > 0) {
        const ssize_t done = ::recv(socket_.get(), to, missing, MSG_DONTWAIT);
        if (done == 0 || (done < 0 && errno != EAGAIN)) return false;
        to += std::max<ssize_t>(done, 0);
        missing -= static_cast<std::size_t>(std::max<ssize_t>(done, 0));
      }
    }
    return true;
  }

 private:
  static sockaddr_in address_of(const char* host, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    ::inet_pton(AF_INET, host, &address.sin_addr);
    return address;
  }
  static bool bounded(const UniqueFd& socket) {
    const timeval limit{30, 0};
    return ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0 &&
           ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0;
  }
  bool at_once() const {
    const int on = 1;
    return bounded(socket_) &&
           ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0;
  }

  UniqueFd listener_;
  UniqueFd socket_;
};

}  // namespace troupe
