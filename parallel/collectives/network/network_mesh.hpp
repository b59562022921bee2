#pragma once

#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/link/link.hpp"
#include "runtime/link/port_range.hpp"
#include "runtime/security/job_secret.hpp"

namespace troupe {

/// The links of one rank to all others (TlsLink): encrypted, and both ends have proven that they
/// know the group's key. The higher of two ranks connects to the lower.
///
/// Between two ranks there are lanes. A piece that one rank put()s is received by the other as soon
/// as that waits, else by a thread of its own within milliseconds, and kept until take(). A lane
/// holds `room` bytes of pieces that are not taken; put() waits while it is full.
///
/// Waits end at the deadline of arm(), by close() on any rank, and when any rank dies; every later
/// call then fails, with the errors of NetworkCollectives, except that what has arrived can still
/// be taken.
///
/// Threads: one at a time, except close().
class NetworkMesh {
 public:
  /// Two lanes, so that a message that nobody receives does not block a collective.
  enum class Lane : std::uint32_t { collective, message };

  static constexpr int max_ranks = 64;
  using Ranks = std::bitset<max_ranks>;

  /// Bytes of another rank.
  class Piece {
   public:
    explicit Piece(std::shared_ptr<const std::vector<std::byte>> frame)
        : frame_(std::move(frame)) {}
    std::span<const std::byte> bytes() const;

   private:
    std::shared_ptr<const std::vector<std::byte>> frame_;
  };

  /// Listens on the address of a network interface ("lo", "eth0") for ranks 0..size-1 that know
  /// `key`. Errors: not_found if the interface has no address, invalid_argument, io.
  static Result<std::unique_ptr<NetworkMesh>> listen(const std::string& interface, int rank,
                                                     int size, std::size_t room, const Key& key,
                                                     PortRange ports = {});
  /// Sends a shutdown notice and waits up to 200 ms for the others', so that what was put arrives.
  ~NetworkMesh();

  /// Where every other rank connects to this one; less than a hundred bytes.
  std::string addresses() const;
  /// Connects to all others, whose addresses() these are, in order of rank, as arm(timeout) allows.
  /// The others may not have called it yet; the first exchange shows that they have. Errors:
  /// corrupt_data if they are not addresses, invalid_argument if they are of another group size or
  /// room; permission_denied if another rank has another key; io; timeout; peer_died.
  Result<void> connect(std::span<const std::string> addresses, std::chrono::milliseconds timeout);

  int rank() const;
  int size() const;
  /// The most bytes of one put().
  std::size_t piece_bytes() const;

  /// Until the result's end this thread receives the pieces itself; several calls below one such
  /// turn save hand-overs.
  LinkTurn begin_turn();
  /// Makes all waits from here on end after `timeout`.
  void arm(std::chrono::milliseconds timeout);
  /// See NetworkCollectives.
  void when_closed(std::function<void()> closed);
  /// The reason, once the group is closed.
  Result<void> check() const;
  /// The same, but waits a moment for the news that another rank has closed it.
  Result<void> wait_closed() const;

  /// Gives what was put a moment to leave, so that no other thread has to be woken to send it, and
  /// copies what has not left of what was lent.
  void drain();
  /// True if put() of any piece would not wait.
  bool has_room(int peer, Lane lane) const;
  /// Sends one piece, made of a copy of `head` and `bytes`; waits while the lane is full.
  Result<void> put(int peer, Lane lane, std::span<const std::byte> head,
                   std::span<const std::byte> bytes);
  /// As put(), but borrows `bytes` until drain().
  Result<void> lend(int peer, Lane lane, std::span<const std::byte> head,
                    std::span<const std::byte> bytes);
  /// Waits until a piece of `peer` has arrived, and then returns true, or until has_room() for one
  /// of `receivers`.
  Result<bool> await(int peer, Lane lane, const Ranks& receivers);
  /// Waits for the peer's next piece.
  Result<Piece> take(int peer, Lane lane);

  /// Ends the group and notifies the others. Any thread; does not wait.
  void close();

 private:
  struct State;
  explicit NetworkMesh(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace troupe
