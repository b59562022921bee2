#include "actors/telemetry/tcp_traffic.hpp"

#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <utility>

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace troupe {
namespace {

/// The numeric address of one end of a socket; empty if it has none.
std::string address_of(int fd, int (*end)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (end(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address.ss_family == AF_INET) bytes = &reinterpret_cast<sockaddr_in&>(address).sin_addr;
  if (address.ss_family == AF_INET6) bytes = &reinterpret_cast<sockaddr_in6&>(address).sin6_addr;
  if (bytes == nullptr) return "";
  return ::inet_ntop(address.ss_family, bytes, text.data(), text.size()) == nullptr ? ""
                                                                                    : text.data();
}

}  // namespace

std::vector<TcpTraffic> tcp_traffic() {
  std::map<std::pair<std::string, std::string>, TcpTraffic> sums;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    std::string local = address_of(fd, ::getsockname);
    std::string peer = address_of(fd, ::getpeername);
    if (peer.empty() || local == peer) continue;
    TcpTraffic& sum = sums[{local, peer}];
    sum.local = std::move(local);
    sum.peer = std::move(peer);
    sum.sent_bytes += info.tcpi_bytes_acked;
    sum.received_bytes += info.tcpi_bytes_received;
  }
  std::vector<TcpTraffic> traffic;
  for (auto& [ends, sum] : sums) traffic.push_back(std::move(sum));
  return traffic;
}

}  // namespace troupe
