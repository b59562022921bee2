#include <filesystem>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/process/runtime/call/patient.hpp"

namespace troupe::test {

int Cutter::cut_links() {
  int cut = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    // Sockets of the call plane have a name in the abstract namespace at one end; the one to the
    // agent has none, and a listener has no peer.
    sockaddr_un own{}, peer{};
    socklen_t own_size = sizeof own, peer_size = sizeof peer;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
        ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 ||
        own.sun_family != AF_UNIX) {
      continue;
    }
    constexpr socklen_t unnamed = sizeof(sa_family_t);
    if (own_size <= unnamed && peer_size <= unnamed) continue;
    if (::shutdown(fd, SHUT_RDWR) == 0) ++cut;
  }
  return cut;
}

int Patient::cut_links() { return Cutter().cut_links(); }

}  // namespace troupe::test

int main(int argc, char** argv) {
  troupe::ActorTypes types;
  types.add<troupe::test::Patient>();
  types.add<troupe::test::Cutter>();
  troupe::init(argc, argv, types);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
