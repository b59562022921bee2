#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/network/network_channel.hpp"
#include "parallel/collectives/network/network_exchange.hpp"
#include "parallel/collectives/network/network_mesh.hpp"

namespace troupe {

/// Collectives between processes of one or more nodes over TLS links, with our own algorithms: the
/// same bits as ShmCollectives. Only holders of the group's key take part, and what they send is
/// encrypted.
///
/// Beyond the contract of Collectives: all other ranks notice a process that dies within
/// milliseconds, whatever they wait for, and a lost host by the timeout: their first call then
/// returns peer_died, or cancelled if another rank aborted first. A rank that destroys its object
/// notifies the others (for 200 ms at most); waits for it afterwards fail with peer_died. A call
/// waits only for the ranks that it gets bytes from, and the timeout names the first late one:
/// broadcast may return on the root before the others have come.
///
/// send() copies the message and returns at once if the room of NetworkRendezvous::announce() has
/// space for it, otherwise when the receiver has taken all but a room's worth. A message needs 40
/// bytes more than its own, and 16 more for each further piece of an eighth of the room (256 KiB at
/// most); as much as a piece may be read but not yet credited: two ranks that first send and then
/// receive up to three quarters of the room do not wait for each other. staging() offers no memory.
class NetworkCollectives final : public Collectives {
 public:
  /// Takes a connected mesh; see NetworkRendezvous.
  explicit NetworkCollectives(std::shared_ptr<NetworkMesh> mesh);
  /// Waits for all ranks under the timeout of the mesh's connect(). Once, before all other calls.
  Result<void> meet_first();

  /// One step of a collective that is more than this group's own: sends and receives `transfers`.
  /// Without any it returns at once: a rank that takes no part in a step need not know of it.
  Result<void> exchange(const CollectiveCall& call, Transfers transfers);
  /// Sends what is small of `transfers`, which exchange() of the same call then gets: the others
  /// need not wait while this rank is busy elsewhere in between.
  Result<void> send_ahead(const CollectiveCall& call, Transfers& transfers);
  /// Why the group has ended, if it has.
  Result<void> check() const { return mesh_->check(); }
  /// Calls `closed` once, when a rank has aborted the group or is gone; from any thread, and at
  /// once if that was before. It must not block or call this object.
  void when_closed(std::function<void()> closed) { mesh_->when_closed(std::move(closed)); }

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }
  using Collectives::all_reduce_tree;
  Result<void> all_reduce_tree(const Tensor& partial, const Tensor& sum) override;
  Result<void> reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                   std::span<const std::int64_t> rows_per_rank) override;
  Result<void> all_gather(const Tensor& part, const Tensor& all,
                          std::span<const std::int64_t> rows_per_rank) override;
  Result<void> broadcast(const Tensor& tensor, int root) override;
  Result<void> all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                          const Tensor& receive,
                          std::span<const std::int64_t> receive_rows) override;
  Result<void> send(const Tensor& tensor, int to) override;
  Result<void> receive(const Tensor& tensor, int from) override;
  Result<void> barrier() override;
  void abort() override { mesh_->close(); }
  bool aborted() const override { return !mesh_->check().ok(); }
  Tensor staging(DType dtype, const Shape& shape) override { return {nullptr, dtype, shape}; }

 private:
  template <class Body>
  Result<void> run(Result<void> checked, const CollectiveCall& call, const Body& body);

  std::shared_ptr<NetworkMesh> mesh_;
  bool failed_ = false;                   // a call has failed and reported the error
  NetworkExchange exchange_;              // refers to mesh_
  std::vector<NetworkChannel> messages_;  // [size], refer to mesh_
};

/// How the ranks of a NetworkCollectives find each other, without a server: each calls announce(),
/// the caller carries every rank's addresses() to every rank, and each calls connect().
class NetworkRendezvous {
 public:
  /// The bytes that a rank keeps for each other rank at most, in each direction of either lane.
  static constexpr std::size_t default_room_bytes = 2u << 20;

  /// Listens on the address of a network interface: "lo" on one machine. `room_bytes` (> 0, rounded
  /// up to 4 KiB) and `key`, which only the ranks of this group may know, must be the same on all
  /// ranks. 1 to 64 ranks. Takes the first free of `ports`. Errors: not_found if the interface has
  /// no address; resource_exhausted if no port is free; invalid_argument, io.
  static Result<NetworkRendezvous> announce(const std::string& interface, int rank, int size,
                                            std::size_t room_bytes, const Key& key,
                                            PortRange ports = {});

  /// This rank's addresses, opaque; less than a hundred bytes.
  std::string addresses() const { return mesh_->addresses(); }

  /// Connects to all others, whose addresses() these are, in order of rank; returns when all have
  /// connected to this one. Once. The links end with the result and this object. Errors:
  /// corrupt_data if they are not addresses, invalid_argument if they are of another group or room;
  /// permission_denied if a rank has another key; io; timeout; peer_died if a rank is gone, or
  /// cancelled if another rank gave up first.
  Result<std::unique_ptr<NetworkCollectives>> connect(
      std::span<const std::string> addresses,
      std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// Ends connect() on this rank, and what it has returned on all of them. Any thread.
  void abort() { mesh_->close(); }

 private:
  explicit NetworkRendezvous(std::shared_ptr<NetworkMesh> mesh) : mesh_(std::move(mesh)) {}

  std::shared_ptr<NetworkMesh> mesh_;
};

}  // namespace troupe
