#include "runtime/call/unix_socket.hpp"

#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace troupe {
namespace {

struct Address {
  sockaddr_un name{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Result<Address> abstract_address(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  if (name.empty() || name.size() > sizeof address.name.sun_path - 1) {
    return fail(ErrorCode::invalid_argument, "'{}' cannot name a socket", name);
  }
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Result<UniqueFd> make_socket() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno(errno, "cannot make a socket");
  return socket;
}

}  // namespace

Result<UniqueFd> listen_at(const std::string& name) {
  TROUPE_TRY(const Address address, abstract_address(name));
  TROUPE_TRY(UniqueFd socket, make_socket());
  if (::bind(socket.get(), address.get(), address.size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return fail_errno(errno, fmt::format("cannot listen at the abstract socket '{}'", name));
  }
  return socket;
}

Result<UniqueFd> connect_to(const std::string& name) {
  TROUPE_TRY(const Address address, abstract_address(name));
  TROUPE_TRY(UniqueFd socket, make_socket());
  if (::connect(socket.get(), address.get(), address.size) != 0) {
    const int why = errno;
    if (why == ECONNREFUSED) {
      return fail(ErrorCode::peer_died, "nobody listens at '{}' any more", name);
    }
    if (why == EAGAIN) {
      return fail(ErrorCode::resource_exhausted, "the queue of new connections at '{}' is full",
                  name);
    }
    return fail_errno(why, fmt::format("cannot connect to '{}'", name));
  }
  TROUPE_CHECK(check_peer_uid(socket.get()));
  return socket;
}

Result<void> check_peer_uid(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return fail_errno(errno, "cannot read the peer's credentials");
  }
  if (peer.uid != ::geteuid()) {
    return fail(ErrorCode::permission_denied, "the peer's uid is {}, ours {}", peer.uid,
                ::geteuid());
  }
  return {};
}

}  // namespace troupe
