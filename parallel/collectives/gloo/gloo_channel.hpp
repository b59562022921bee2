#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "parallel/collectives/collective_call.hpp"
#include "parallel/collectives/gloo/gloo_mesh.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A message being sent; `done` bytes have gone.
struct Outgoing {
  std::span<const std::byte> bytes;
  std::size_t done = 0;
  bool begun = false;

  bool finished() const { return begun && done == bytes.size(); }
};

/// A message being received.
struct Incoming {
  std::span<std::byte> bytes;
  std::size_t done = 0;
  bool begun = false;

  bool finished() const { return begun && done == bytes.size(); }
};

/// Messages to and from one other rank over a lane of a GlooMesh, whose outbox and inbox it uses as
/// rings. A message is a header (its call and length) and its bytes, cut into pieces; both sides
/// know where the cuts are. The receiver returns a credit for each eighth of the ring that it has
/// read, so at least three pieces may be under way.
///
/// A piece ends with its number, counted from the sender's nonce, by which a receiver recognises a
/// complete piece from a rank that has died since.
class GlooChannel {
 public:
  GlooChannel(GlooMesh& mesh, int peer, GlooMesh::Lane lane)
      : mesh_(mesh), peer_(peer), lane_(lane) {}

  /// Copies the next piece of `message` out; waits while the other rank has no room for it.
  Result<void> push(Outgoing& message, const CollectiveCall& call);
  /// Waits for the next piece of `message`. Errors besides those of the mesh: invalid_argument if
  /// the message is of another call or length.
  Result<void> pull(Incoming& message, const CollectiveCall& call);

  /// The largest piece, in bytes.
  static std::size_t piece_bytes(std::size_t room) { return room / 8; }

 private:
  struct Head;
  struct Piece;

  Piece next_piece(std::uint64_t position, bool begun, std::size_t left) const;
  Result<void> check_head(const Head& head, const Incoming& message,
                          const CollectiveCall& call) const;

  GlooMesh& mesh_;
  int peer_;
  GlooMesh::Lane lane_;

  std::uint64_t written_ = 0;
  std::uint64_t credited_ = 0;  // bytes of written_ that the other rank has read
  std::uint64_t pieces_written_ = 0;
  std::deque<std::uint64_t> put_ends_;  // ends of puts that are not reaped, ascending
  std::uint64_t taken_ = 0;
  std::uint64_t given_ = 0;  // credits given
  std::uint64_t pieces_taken_ = 0;
};

}  // namespace troupe
