#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// The traffic of this process's open TCP connections with one other address, as the kernel counts
/// it: bytes of all planes, encrypted, without headers.
struct TcpTraffic {
  std::string local;  ///< numeric addresses, which differ
  std::string peer;
  std::uint64_t sent_bytes = 0;  ///< and acknowledged
  std::uint64_t received_bytes = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(local, peer, sent_bytes, received_bytes);
  }
};

/// Sums up this process's connections for each pair of addresses; those within one address do not
/// count.
std::vector<TcpTraffic> tcp_traffic();

}  // namespace troupe
