#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "runtime/process/unique_fd.hpp"

namespace troupe::test {

/// A stranger that keeps a listener busy from its own thread: it holds idle connections, reopens
/// each that the listener closes, and knocks (connects, and sends nothing, nonsense, or the
/// beginning of a TLS handshake, then leaves or stays a moment). It runs as long as the object
/// lives.
class Knocker {
 public:
  /// Begins a connection without waiting; empty if that fails.
  using Connect = std::function<UniqueFd()>;
  struct Options {
    int idle = 2000;
    int knocks_per_second = 200;  ///< idle connections are opened again at this rate at most
  };

  Knocker(Connect connect, Options options) : connect_(std::move(connect)), options_(options) {
    allow_descriptors(static_cast<rlim_t>(options.idle) + 1024);
    thread_ = std::thread([this] { run(); });
  }
  ~Knocker() {
    over_ = true;
    thread_.join();
  }
  Knocker(const Knocker&) = delete;
  Knocker& operator=(const Knocker&) = delete;

  int knocks() const { return knocks_; }            ///< so far
  int connections() const { return connections_; }  ///< begun so far, including idle ones

  static Connect to_port(std::uint16_t port) {
    return [port] {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      return begin(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    };
  }
  /// A unix socket in the abstract namespace.
  static Connect to_abstract(std::string name) {
    return [name = std::move(name)] {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path + 1, name.data(),
                  std::min(name.size(), sizeof address.sun_path - 1));
      return begin(AF_UNIX, reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
    };
  }

 private:
  using Clock = std::chrono::steady_clock;

  static UniqueFd begin(int family, const sockaddr* address, socklen_t length) {
    UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket && ::connect(socket.get(), address, length) != 0 && errno != EINPROGRESS) {
      socket.reset();
    }
    return socket;
  }

  /// Allows this process, not the attacked one, that many descriptors.
  static void allow_descriptors(rlim_t wanted) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= wanted) return;
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }

  static bool is_closed(const UniqueFd& socket) {
    if (!socket) return true;
    char byte = 0;
    const ssize_t count = ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN);
  }

  void run() {
    constexpr std::chrono::milliseconds tick{5};
    std::vector<UniqueFd> idle(static_cast<std::size_t>(options_.idle));
    std::vector<UniqueFd> lingering(64);
    const auto start = Clock::now();
    int reopened = -options_.idle;  // the first time is free
    while (!over_) {
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      const int due = static_cast<int>(seconds * options_.knocks_per_second);
      for (auto& socket : idle) {
        if (reopened >= due) break;
        if (!is_closed(socket)) continue;
        socket = connect_();
        ++connections_;
        ++reopened;
      }
      while (knocks_ < due && !over_) {
        knock(lingering[static_cast<std::size_t>(knocks_) % lingering.size()]);
      }
      std::this_thread::sleep_for(tick);
    }
  }

  void knock(UniqueFd& lingering) {
    using namespace std::string_view_literals;
    static constexpr std::array<std::string_view, 5> words{
        ""sv, "GET / HTTP/1.0\r\n\r\n"sv, "\x16\x03\x01\x02\x00\x01\x00"sv,
        "\xff\xff\xff\xff\xff\xff\xff\xff"sv, "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"sv};
    UniqueFd socket = connect_();
    ++connections_;
    const auto count = static_cast<std::size_t>(knocks_++);
    if (!socket) return;
    const auto text = words[count % words.size()];
    if (!text.empty()) (void)::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (count % 3 == 0) lingering = std::move(socket);
  }

  const Connect connect_;
  const Options options_;
  std::atomic<bool> over_ = false;
  std::atomic<int> knocks_ = 0;
  std::atomic<int> connections_ = 0;
  std::thread thread_;
};

}  // namespace troupe::test
