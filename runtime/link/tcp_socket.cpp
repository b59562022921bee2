#include "runtime/link/tcp_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

namespace troupe {
namespace {

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

std::uint16_t& port_in(TcpAddress& address) {
  return address.family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port
                                    : reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port;
}

}  // namespace

Result<TcpAddress> look_up(const std::string& host, std::uint16_t port, bool numeric) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (numeric ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  const int rc = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (rc != 0) {
    return fail(ErrorCode::not_found, "no address of '{}': {}", host, ::gai_strerror(rc));
  }
  TcpAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  address.family = found->ai_family;
  ::freeaddrinfo(found);
  return address;
}

void tune(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 5);
}

Result<UniqueFd> listen_in(PortRange ports, const std::string& name, const std::string& address) {
  TROUPE_TRY(TcpAddress where, look_up(address, 0, true));
  const std::string what = fmt::format("{} cannot listen at {}", name, address);
  UniqueFd socket;
  TROUPE_CHECK(take_first(ports, what, [&](std::uint16_t port) -> Result<bool> {
    socket.reset(::socket(where.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // Connections of an earlier listener that are just over do not keep its port.
    if (socket && port != 0) set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    port_in(where) = htons(port);
    if (socket && ::bind(socket.get(), where.get(), where.length) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0) {
      return true;
    }
    if (errno == EADDRINUSE) return false;
    return fail_errno(errno, what);
  }));
  return socket;
}

Result<std::uint16_t> port_of(int socket) {
  TcpAddress bound;
  bound.length = sizeof bound.storage;
  if (::getsockname(socket, bound.get(), &bound.length) != 0) {
    return fail_errno(errno, "cannot tell a listener's port");
  }
  bound.family = bound.storage.ss_family;
  return ntohs(port_in(bound));
}

}  // namespace troupe
