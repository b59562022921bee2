#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "parallel/collectives/collective_call.hpp"
#include "parallel/collectives/network/network_channel.hpp"
#include "parallel/collectives/network/network_mesh.hpp"
#include "parallel/collectives/scratch.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// The bytes that a rank sends to and receives from every other one, in order of rank; this rank's
/// own entries stay empty. An entry that is not set is no message; one that is set is a message,
/// even with no bytes, which the other rank must expect.
struct Transfers {
  explicit Transfers(int size);
  void send(int to, std::span<const std::byte> bytes);
  void receive(int from, std::span<std::byte> bytes);
  /// Receives `count` floats into `use`, which must not write what is sent.
  void receive(int from, std::size_t count, Incoming::Use use);
  /// True if there is no message.
  bool empty() const;

  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
};

/// The building block of all collectives over a NetworkMesh. While a rank waits for a piece, it
/// sends to every other one what its lane has room for, so that ranks that all send at once do not
/// deadlock.
class NetworkExchange {
 public:
  explicit NetworkExchange(NetworkMesh& mesh);

  int rank() const { return mesh_.rank(); }
  int size() const { return mesh_.size(); }

  /// Makes the next run()s belong to `call`, which the other ranks must be in too.
  void begin(const CollectiveCall& call) { call_ = call; }
  Result<void> run(Transfers transfers);
  /// Sends what run() would send before it waits.
  Result<void> send_ahead(Transfers& transfers);

  /// `count` floats for received terms, 64-byte aligned, until the next call.
  std::span<float> scratch(std::size_t count) { return scratch_.floats(count); }

 private:
  Result<void> exchange(Transfers& transfers);
  Result<void> push_what_fits(Transfers& transfers);

  NetworkMesh& mesh_;
  CollectiveCall call_;
  std::vector<NetworkChannel> channels_;  // [size]; this rank's is not used
  Scratch scratch_;
};

}  // namespace troupe
