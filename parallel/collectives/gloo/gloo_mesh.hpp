#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// The TCP connections of one rank to all others, by Gloo's transport, of which only the one-sided
/// writes are used; its source is the only file that knows Gloo. Gloo's reductions are not used:
/// their order of addition depends on the offset in a buffer.
///
/// Between two ranks there are lanes, each with an outbox on one side whose bytes are put() into
/// the inbox of the other, at the same offset. A thread of Gloo's reads what arrives, whatever this
/// rank does meanwhile, so a put never waits; the user of a lane (GlooChannel) must not overwrite a
/// byte that the other still needs, and uses credits for that.
///
/// Waits end at the deadline of arm(), by close() on any rank, and when any rank dies; then all
/// connections are closed and every later call fails, with the errors of GlooCollectives. Its own
/// threads keep the time and learn how each other rank ends.
///
/// Threads: one at a time, except close().
class GlooMesh {
 public:
  /// Two lanes, so that a message that nobody receives does not block a collective.
  enum class Lane { collective, message };

  /// Listens on the address of a network interface ("lo", "eth0") for ranks 0..size-1; each lane
  /// has `room` bytes. Errors: not_found if the interface has no address, invalid_argument, io.
  static Result<std::unique_ptr<GlooMesh>> listen(const std::string& interface, int rank, int size,
                                                  std::size_t room);
  /// Sends a shutdown notice and waits up to 200 ms for the others', so that what was put arrives.
  ~GlooMesh();

  /// Where every other rank connects to this one; a few hundred bytes per rank.
  std::string addresses() const;
  /// Connects to all others, whose addresses() these are, in order of rank. The others may not have
  /// called it yet; on success the timeout keeps running until disarm(), for the first exchange,
  /// which shows that they have. Errors: corrupt_data if they are not addresses, invalid_argument
  /// if they are of another group size or room; io; timeout; peer_died.
  Result<void> connect(std::span<const std::string> addresses, std::chrono::milliseconds timeout);

  int rank() const;
  int size() const;
  std::size_t room() const;

  /// Makes all waits from here on end after `timeout`, until disarm().
  void arm(std::chrono::milliseconds timeout);
  void disarm();
  /// The reason, once the group is closed.
  Result<void> check() const;
  /// The same, but waits a moment for the news that another rank has closed it.
  Result<void> wait_closed() const;

  /// A random number of this rank, and of a connected peer.
  std::uint64_t own_nonce() const;
  std::uint64_t nonce(int peer) const;

  /// `room` bytes each. Bytes that were put must not change until the other rank has acknowledged
  /// them.
  std::span<std::byte> outbox(int peer, Lane lane);
  std::span<const std::byte> inbox(int peer, Lane lane) const;

  /// Puts outbox bytes [begin, begin + bytes) into the peer's inbox.
  Result<void> put(int peer, Lane lane, std::size_t begin, std::size_t bytes);
  /// Waits until the peer's next put has fully arrived.
  Result<void> wait_put(int peer, Lane lane);
  /// Gives a credit, or waits for the peer's next.
  Result<void> give_credit(int peer, Lane lane);
  Result<void> wait_credit(int peer, Lane lane);
  /// Forgets `puts` that the peer has acknowledged.
  Result<void> reap(int peer, Lane lane, int puts);

  /// Ends the group: notifies the others, closes the connections. Any thread; takes some 10 ms.
  void close();

 private:
  struct State;
  explicit GlooMesh(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace troupe
