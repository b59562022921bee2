#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/network/network_collectives.hpp"
#include "runtime/memory/shared_memory.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe::test {

enum class Backend { shm, network, hierarchical };

std::string_view to_string(Backend backend);

/// The seats of a group for processes forked later: what they need to find each other.
class Seats {
 public:
  /// `piece_bytes`: how much of a tensor, or of messages, the implementation can hold at once.
  Seats(Backend backend, int ranks, std::size_t piece_bytes);
  /// Hierarchical: `node_of` each rank, numbered from 0 without gaps.
  Seats(std::vector<int> node_of, std::size_t piece_bytes);

  int ranks() const { return ranks_; }
  /// Takes the seat of a rank; each once, in its own process. Ends the process on an error.
  std::unique_ptr<Collectives> take(int rank) const;

 private:
  std::unique_ptr<Collectives> take_shm(int rank) const;
  std::unique_ptr<NetworkCollectives> take_network(int rank) const;
  std::unique_ptr<Collectives> take_hierarchical(int rank) const;
  void open_pipes();

  struct Pipe {
    UniqueFd read;
    UniqueFd write;
  };

  Backend backend_;
  int ranks_;
  std::size_t piece_bytes_;
  std::vector<int> node_of_;
  SharedMemory region_;
  std::vector<SharedMemory> node_regions_;  // empty for a node of one rank
  std::vector<Pipe> pipes_;                 // to each rank, for the others' addresses
};

}  // namespace troupe::test
