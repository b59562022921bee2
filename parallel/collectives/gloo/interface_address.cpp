#include "parallel/collectives/gloo/interface_address.hpp"

#include <array>
#include <memory>
#include <set>

#include <errno.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

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

}  // namespace

Result<std::string> interface_address(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return fail_errno(errno, "cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::set<std::string> others;
  std::string v6;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (entry->ifa_name != interface) {
      others.insert(entry->ifa_name);
    } else if (family == AF_INET) {
      return numeric(entry->ifa_addr, sizeof(sockaddr_in));
    } else if (v6.empty()) {
      TROUPE_TRY(v6, numeric(entry->ifa_addr, sizeof(sockaddr_in6)));
    }
  }
  if (!v6.empty()) return v6;
  return fail(ErrorCode::not_found,
              "collectives: network interface '{}' has no address on this node; there are: {}",
              interface, fmt::join(others, ", "));
}

}  // namespace troupe
