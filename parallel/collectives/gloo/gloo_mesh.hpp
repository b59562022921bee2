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

/// The TCP connections of one rank to all others, by Gloo's transport, of which this class uses the
/// one-sided writes alone; its source is the only file that knows Gloo. Gloo's reductions are not
/// used: their order of adding depends on the place in a buffer.
///
/// Between two ranks there are lanes, each with an outbox on one side whose bytes are put() into
/// the inbox of the other, at the same place. A thread of Gloo's reads what arrives, whatever this
/// rank does meanwhile, so a put never waits; whoever uses a lane sees to it (GlooChannel) that no
/// byte is put over one that the other still needs, for which there are credits.
///
/// Waits end at the deadline of arm(), by close() on any rank, and when any rank dies; then all
/// connections are closed and every later call fails, with the errors of GlooCollectives. Threads
/// of its own keep the time, and hear what becomes of each other rank.
///
/// Threads: one at a time, except close().
class GlooMesh {
 public:
  /// Two, so that a message between two ranks that nobody takes is not in the way of a collective.
  enum class Lane { collective, message };

  /// Listens on the address of a network interface ("lo", "eth0") for ranks 0..size-1; each lane
  /// has `room` bytes. Errors: not_found if the interface has no address, invalid_argument, io.
  static Result<std::unique_ptr<GlooMesh>> listen(const std::string& interface, int rank, int size,
                                                  std::size_t room);
  /// Says goodbye and waits up to 200 ms for the others to do so, so that what was put arrives.
  ~GlooMesh();

  /// Where every other rank finds this one; a few hundred bytes per rank.
  std::string addresses() const;
  /// Connects to all others, whose addresses() these are, in order of rank. The other may not have
  /// called it yet; on success the timeout runs on until disarm(), for the first exchange, which
  /// shows that it has. Errors: corrupt_data if they are not addresses, invalid_argument if they
  /// are of another group size or room; io; timeout; peer_died.
  Result<void> connect(std::span<const std::string> addresses, std::chrono::milliseconds timeout);

  int rank() const;
  int size() const;
  std::size_t room() const;

  /// All waits from here on end after `timeout`, until disarm().
  void arm(std::chrono::milliseconds timeout);
  void disarm();
  /// Once the group is closed: why.
  Result<void> check() const;
  /// The same, but gives a moment for the news that another rank has closed it.
  Result<void> wait_closed() const;

  /// A random number of this rank, and of a peer once connected.
  std::uint64_t own_nonce() const;
  std::uint64_t nonce(int peer) const;

  /// `room` bytes each. What is put must not change until the other rank has said
  /// that it has it.
  std::span<std::byte> outbox(int peer, Lane lane);
  std::span<const std::byte> inbox(int peer, Lane lane) const;

  /// Puts outbox bytes [begin, begin + bytes) into the peer's inbox.
  Result<void> put(int peer, Lane lane, std::size_t begin, std::size_t bytes);
  /// Waits for the peer's next put to be there in whole.
  Result<void> wait_put(int peer, Lane lane);
  /// Gives a credit, and waits for the peer's next.
  Result<void> give_credit(int peer, Lane lane);
  Result<void> wait_credit(int peer, Lane lane);
  /// Forgets `puts` that the peer has told it has.
  Result<void> reap(int peer, Lane lane, int puts);

  /// Ends the group: tells the others, closes the connections. Any thread; takes some 10 ms.
  void close();

 private:
  struct State;
  explicit GlooMesh(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace troupe
