#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "parallel/collectives/collective_call.hpp"
#include "parallel/collectives/gloo/gloo_mesh.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// A message on its way out, of which `done` bytes have gone.
struct Outgoing {
  std::span<const std::byte> bytes;
  std::size_t done = 0;
  bool begun = false;

  bool finished() const { return begun && done == bytes.size(); }
};

/// A message on its way in.
struct Incoming {
  std::span<std::byte> bytes;
  std::size_t done = 0;
  bool begun = false;

  bool finished() const { return begun && done == bytes.size(); }
};

/// Messages to and from one other rank over a lane of a GlooMesh, whose outbox and inbox it uses as
/// rings. A message is a head, which tells the call it belongs to and its length, and its bytes,
/// cut into pieces; both sides know where the cuts are. Each eighth of the room that is taken gives
/// the sender a credit, so at least three pieces may be on their way.
///
/// A piece ends with its number, counted from the sender's nonce, by which a receiver knows one
/// that came in whole from a rank that has gone since.
class GlooChannel {
 public:
  GlooChannel(GlooMesh& mesh, int peer, GlooMesh::Lane lane)
      : mesh_(mesh), peer_(peer), lane_(lane) {}

  /// Copies the next piece of `message` out; waits while the other rank has no room for it.
  Result<void> push(Outgoing& message, const CollectiveCall& call);
  /// Waits for the next piece of `message`. Errors besides those of the mesh: invalid_argument if
  /// the message is of another call or length.
  Result<void> pull(Incoming& message, const CollectiveCall& call);

  /// Most bytes of a piece.
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
  std::uint64_t credited_ = 0;  // of written_, what the other rank has taken
  std::uint64_t pieces_written_ = 0;
  std::deque<std::uint64_t> put_ends_;  // of puts that are not reaped, ascending
  std::uint64_t taken_ = 0;
  std::uint64_t given_ = 0;  // credits
  std::uint64_t pieces_taken_ = 0;
};

}  // namespace troupe
