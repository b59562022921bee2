#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "runtime/process/unique_fd.hpp"

namespace troupe::test {

/// Makes the link of a host (test_hosts.hpp) slow while this object lives. Its Ethernet frames then
/// pass through a relay of this process, between two TAP devices, as the kernel has no netem.
/// Frames are lost only when a megabyte waits, as in a router.
class SlowLink {
 public:
  struct Options {
    std::chrono::milliseconds delay{20};       ///< of each frame, in each direction
    double bytes_per_second = 10e6;            ///< in each direction
    std::chrono::milliseconds stall_every{0};  ///< nothing passes at the end of each such time; 0:
                                               ///< no stalls
    std::chrono::milliseconds stall{1000};     ///< for so long; shorter than stall_every
    /// Larger frames between this host and others vanish, as where the MTU on the way is smaller
    /// and nobody says so; 0: none do.
    std::size_t largest_between_hosts = 0;
  };

  /// Throws std::runtime_error.
  SlowLink(int host, Options options);
  ~SlowLink();
  SlowLink(const SlowLink&) = delete;
  SlowLink& operator=(const SlowLink&) = delete;

  /// What has passed in both directions.
  std::uint64_t carried_bytes() const { return carried_bytes_; }

 private:
  void relay();

  std::string host_;
  Options options_;
  UniqueFd near_, far_;  // the TAP devices on the bridge and in the host
  UniqueFd stop_;
  std::atomic<std::uint64_t> carried_bytes_ = 0;
  std::thread thread_;
};

/// Why there are no slow links; empty if there are. A test that needs them skips with it.
std::string missing_slow_links();

}  // namespace troupe::test
