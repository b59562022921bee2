#include "runtime/link/local_address.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <set>

#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

Result<std::string> numeric(const sockaddr* address, socklen_t bytes) {
  std::array<char, NI_MAXHOST> text{};
  const int failed =
      ::getnameinfo(address, bytes, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  if (failed == 0) return std::string(text.data());
  return fail(ErrorCode::io, "cannot write down the address of a network interface: {}",
              ::gai_strerror(failed));
}

/// Errors: not_found if an interface's address is none of IPv4 or IPv6; io.
Result<std::string> numeric_of(const ifaddrs& entry) {
  const int family = entry.ifa_addr == nullptr ? AF_UNSPEC : entry.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) {
    return fail(ErrorCode::not_found, "{} has no address of IP", entry.ifa_name);
  }
  return numeric(entry.ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
}

}  // namespace

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
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return fail_errno(errno, fmt::format("cannot tell our address towards '{}'", host));
  }
  return numeric(reinterpret_cast<sockaddr*>(&own), size);
}

Result<std::string> interface_address(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return fail_errno(errno, "cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::set<std::string> others;
  std::string v6;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    auto found = numeric_of(*entry);
    if (!found.ok()) continue;
    std::string text = *std::move(found);
    const int family = entry->ifa_addr->sa_family;
    if (text == interface) return text;
    if (entry->ifa_name != interface) {
      others.insert(entry->ifa_name);
    } else if (family == AF_INET) {
      return text;
    } else if (v6.empty()) {
      v6 = std::move(text);
    }
  }
  if (!v6.empty()) return v6;
  return fail(ErrorCode::not_found,
              "network interface '{}' has no address on this machine; there are: {}", interface,
              fmt::join(others, ", "));
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

Result<std::vector<std::string>> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int rc = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); rc != 0) {
    return fail(ErrorCode::not_found, "no address of '{}': {}", host, ::gai_strerror(rc));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    TROUPE_TRY(std::string text, numeric(entry->ai_addr, entry->ai_addrlen));
    addresses.push_back(std::move(text));
  }
  return addresses;
}

Result<std::string> interface_of(const std::string& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return fail_errno(errno, "cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const auto text = numeric_of(*entry);
    if (text.ok() && *text == address) return std::string(entry->ifa_name);
  }
  return fail(ErrorCode::not_found, "no network interface has the address {}", address);
}

Result<std::string> own_address(const std::string& host) {
  auto own = interface_address(host);
  if (own.ok()) return own;
  const auto addresses = addresses_of(host);
  if (!addresses.ok()) return own;
  for (const std::string& text : *addresses) {
    if (interface_address(text).ok()) return text;
  }
  if (const auto loop = std::ranges::find_if(*addresses, is_loopback); loop != addresses->end()) {
    return fail(ErrorCode::not_found,
                "'{}' stands for {} here (/etc/hosts), which other hosts do not reach: give the "
                "address or interface that they reach",
                host, *loop);
  }
  return fail(ErrorCode::not_found, "'{}' is not this machine: none of its addresses is here",
              host);
}

}  // namespace troupe
