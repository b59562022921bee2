#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/peer/peer_sums.hpp"

namespace troupe {

/// A region of each rank's GPU that the kernels of all ranks of a group access over NVLink or PCIe,
/// by default laid out as PeerRegions. Ranks are threads of one process or processes of one node.
class PeerMemory {
 public:
  /// Called by all ranks of `host`, whose GPUs are their threads' devices. Null on all ranks if
  /// some GPU cannot access another's memory. Errors: those of Collectives; resource_exhausted;
  /// invalid_argument for more than max_peer_ranks ranks.
  ///
  /// A region has `bytes`: the first `cleared` are initially zero, and all bits of the others are
  /// set.
  static Result<std::unique_ptr<PeerMemory>> open(int device, Collectives& host,
                                                  std::size_t bytes = peer_region_bytes,
                                                  std::size_t cleared = peer_cleared_bytes);
  /// All work that uses it must be done, on this rank and on the others.
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  const PeerRegions& regions() const { return regions_; }

 private:
  struct Address;

  PeerMemory(int device, int rank) : device_(device), rank_(rank) {}
  Result<void> allocate(std::size_t bytes, std::size_t cleared);
  bool reach(int peer, const Address& address);

  int device_;
  int rank_;
  PeerRegions regions_;
  std::array<bool, max_peer_ranks> opened_{};  ///< of other processes; to be closed
};

}  // namespace troupe
