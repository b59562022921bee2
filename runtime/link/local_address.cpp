#include "runtime/link/local_address.hpp"

#include <array>
#include <cerrno>
#include <memory>

#include <netdb.h>
#include <sys/socket.h>

#include "runtime/process/unique_fd.hpp"

namespace troupe {

Result<std::string> local_address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  constexpr const char* any_port = "9";  // a datagram socket connects without sending
  if (const int rc = ::getaddrinfo(host.c_str(), any_port, &hints, &list); rc != 0) {
    return fail(ErrorCode::not_found, "no address of '{}': {}", host, ::gai_strerror(rc));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  const UniqueFd socket(::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0) {
    return fail_errno(errno, fmt::format("there is no way to '{}'", host));
  }
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  std::array<char, NI_MAXHOST> text{};
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return fail_errno(errno, fmt::format("cannot tell our address towards '{}'", host));
  }
  return std::string(text.data());
}

}  // namespace troupe
