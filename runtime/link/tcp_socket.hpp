#pragma once

#include <cstdint>
#include <string>

#include <sys/socket.h>

#include "runtime/base/result.hpp"
#include "runtime/link/port_range.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// An address of TCP, IPv4 or IPv6, with its port.
struct TcpAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family = AF_UNSPEC;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

/// Looks an address or, unless `numeric`, a name up. Errors: not_found.
Result<TcpAddress> look_up(const std::string& host, std::uint16_t port, bool numeric);

/// Sends without delay (TCP_NODELAY), and detects a host that is gone after about 15 s in which
/// nothing is under way to it. The kernel answers keepalives for a stopped process.
void tune(int socket);

/// A socket that listens at a numeric address on the first free port of `ports`. `name` is the
/// listener's in errors: not_found, io; resource_exhausted if no port is free.
Result<UniqueFd> listen_in(PortRange ports, const std::string& name, const std::string& address);

/// The port that a socket is bound to.
Result<std::uint16_t> port_of(int socket);

}  // namespace troupe
