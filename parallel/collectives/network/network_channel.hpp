#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "parallel/collectives/collective_call.hpp"
#include "parallel/collectives/network/network_mesh.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A message being sent; `done` bytes have gone.
struct Outgoing {
  std::span<const std::byte> bytes = {};
  std::size_t done = 0;
  bool begun = false;

  bool finished() const { return begun && done == bytes.size(); }
};

/// A message being received: into `room`, or as floats into `use`.
struct Incoming {
  /// Gets the floats from number `begin` on; they are gone when it returns.
  using Use = std::function<void(std::size_t begin, std::span<const float> floats)>;

  std::size_t bytes = 0;
  std::byte* room = nullptr;
  Use use{};
  std::size_t done = 0;
  bool begun = false;

  bool finished() const { return begun && done == bytes; }
};

/// Messages to and from one other rank over a lane of a NetworkMesh. A message is a header (its
/// call and length) and its bytes, cut into pieces.
class NetworkChannel {
 public:
  NetworkChannel(NetworkMesh& mesh, int peer, NetworkMesh::Lane lane)
      : mesh_(mesh), peer_(peer), lane_(lane) {}

  /// True if push() would not wait.
  bool has_room() const { return mesh_.has_room(peer_, lane_); }
  /// Sends the next piece of `message`; waits while the other rank has no room for it. On the lane
  /// of collectives the bytes are lent until the mesh's drain().
  Result<void> push(Outgoing& message, const CollectiveCall& call);
  /// Waits for the next piece of `message`. Errors besides those of the mesh: invalid_argument if
  /// the message is of another call or length, corrupt_data.
  Result<void> pull(Incoming& message, const CollectiveCall& call);

 private:
  struct Head;

  Result<void> check_head(const Head& head, const Incoming& message,
                          const CollectiveCall& call) const;
  Error wrong_piece(std::size_t bytes) const;

  NetworkMesh& mesh_;
  int peer_;
  NetworkMesh::Lane lane_;
};

}  // namespace troupe
