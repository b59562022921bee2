#include "parallel/collectives/network/network_collectives.hpp"

#include <algorithm>

#include "parallel/collectives/collective_checks.hpp"
#include "parallel/collectives/network/network_algorithms.hpp"
#include "parallel/collectives/two_shot.hpp"

namespace troupe {

namespace {

// More would not leave at once, but be copied.
constexpr std::size_t max_ahead_bytes = 128u << 10;

}  // namespace

NetworkCollectives::NetworkCollectives(std::shared_ptr<NetworkMesh> mesh)
    : mesh_(std::move(mesh)), exchange_(*mesh_) {
  for (int peer = 0; peer < mesh_->size(); ++peer) {
    messages_.emplace_back(*mesh_, peer, NetworkMesh::Lane::message);
  }
}

// A rank that cannot take part, or fails, must not leave the others waiting for it.
template <class Body>
Result<void> NetworkCollectives::run(Result<void> checked, const CollectiveCall& call,
                                     const Body& body) {
  if (failed_) {
    return fail(ErrorCode::cancelled, "collectives: {} on rank {} of {}: the group has failed",
                describe(call), rank(), size());
  }
  const LinkTurn turn = mesh_->begin_turn();
  Result<void> done = mesh_->check();
  const bool wrong_arguments = done && !checked;
  if (wrong_arguments) done = std::move(checked);
  if (done) {
    mesh_->arm(timeout());
    exchange_.begin(call);
    done = body();
  }
  if (done) return done;
  failed_ = true;
  // Ranks may seem to disagree because one of them has aborted a call that the others are still in.
  if (!wrong_arguments && done.error().code == ErrorCode::invalid_argument) {
    if (auto closed = mesh_->wait_closed(); !closed) return closed;
  }
  mesh_->close();
  return done;
}

Result<void> NetworkCollectives::all_reduce_tree(const Tensor& partial, const Tensor& sum) {
  return run(check_all_reduce(partial, sum), {CollectiveCall::Kind::all_reduce, 0, partial.bytes()},
             [&] {
               const bool two_shot = size() > 2 && partial.bytes() > two_shot_above_bytes;
               return (two_shot ? network_all_reduce_two_shot : network_all_reduce_one_shot)(
                   exchange_, partial.span<float>(), sum.span<float>());
             });
}

Result<void> NetworkCollectives::reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                                     std::span<const std::int64_t> rows_per_rank) {
  return run(check_reduce_scatter(partial, sum, rows_per_rank, rank(), size()),
             {CollectiveCall::Kind::reduce_scatter, 0, partial.bytes()}, [&] {
               return network_reduce_scatter(
                   exchange_, partial.span<float>(), sum.span<float>(),
                   scaled(rows_per_rank, static_cast<std::size_t>(row_elements(partial))));
             });
}

Result<void> NetworkCollectives::all_gather(const Tensor& part, const Tensor& all,
                                            std::span<const std::int64_t> rows_per_rank) {
  return run(check_all_gather(part, all, rows_per_rank, rank(), size()),
             {CollectiveCall::Kind::all_gather, 0, all.bytes()}, [&] {
               return network_all_gather(exchange_, bytes_of(part), bytes_of(all),
                                         scaled(rows_per_rank, row_bytes(all)));
             });
}

Result<void> NetworkCollectives::broadcast(const Tensor& tensor, int root) {
  return run(check_broadcast(root, size()),
             {CollectiveCall::Kind::broadcast, static_cast<std::uint32_t>(root), tensor.bytes()},
             [&] { return network_broadcast(exchange_, bytes_of(tensor), root); });
}

Result<void> NetworkCollectives::all_to_all(const Tensor& send,
                                            std::span<const std::int64_t> send_rows,
                                            const Tensor& receive,
                                            std::span<const std::int64_t> receive_rows) {
  return run(check_all_to_all(send, send_rows, receive, receive_rows, size()),
             {CollectiveCall::Kind::all_to_all, 0, row_bytes(send)}, [&] {
               return network_all_to_all(exchange_, bytes_of(send),
                                         scaled(send_rows, row_bytes(send)), bytes_of(receive),
                                         scaled(receive_rows, row_bytes(receive)));
             });
}

Result<void> NetworkCollectives::barrier() {
  return run({}, {CollectiveCall::Kind::barrier, 0, 0}, [&] { return network_barrier(exchange_); });
}

Result<void> NetworkCollectives::meet_first() {
  exchange_.begin({CollectiveCall::Kind::barrier, 0, 0});
  Result<void> met = network_barrier(exchange_);
  if (!met) mesh_->close();
  return met;
}

Result<void> NetworkCollectives::exchange(const CollectiveCall& call, Transfers transfers) {
  // No other rank expects a message of this one, so that it need not wait for its turn.
  if (!failed_ && transfers.empty()) return check();
  return run({}, call, [&] { return exchange_.run(std::move(transfers)); });
}

Result<void> NetworkCollectives::send_ahead(const CollectiveCall& call, Transfers& transfers) {
  std::size_t bytes = 0;
  for (const Outgoing& message : transfers.sends) bytes += message.bytes.size();
  if (bytes > max_ahead_bytes || transfers.empty()) return {};
  return run({}, call, [&] { return exchange_.send_ahead(transfers); });
}

Result<void> NetworkCollectives::send(const Tensor& tensor, int to) {
  const CollectiveCall call{CollectiveCall::Kind::message, 0, 0};
  return run(check_peer("send", to, rank(), size()), call, [&]() -> Result<void> {
    Outgoing message{bytes_of(tensor)};
    while (!message.finished()) {
      TROUPE_CHECK(messages_[static_cast<std::size_t>(to)].push(message, call));
    }
    return {};
  });
}

Result<void> NetworkCollectives::receive(const Tensor& tensor, int from) {
  const CollectiveCall call{CollectiveCall::Kind::message, 0, 0};
  return run(check_peer("receive", from, rank(), size()), call, [&]() -> Result<void> {
    Incoming message{.bytes = tensor.bytes(), .room = bytes_of(tensor).data()};
    while (!message.finished()) {
      TROUPE_CHECK(messages_[static_cast<std::size_t>(from)].pull(message, call));
    }
    return {};
  });
}

Result<NetworkRendezvous> NetworkRendezvous::announce(const std::string& interface, int rank,
                                                      int size, std::size_t room_bytes,
                                                      const Key& key, PortRange ports) {
  TROUPE_TRY(auto mesh, NetworkMesh::listen(interface, rank, size, room_bytes, key, ports));
  return NetworkRendezvous(std::move(mesh));
}

Result<std::unique_ptr<NetworkCollectives>> NetworkRendezvous::connect(
    std::span<const std::string> addresses, std::chrono::milliseconds timeout) {
  TROUPE_CHECK(mesh_->connect(addresses, timeout));
  auto group = std::make_unique<NetworkCollectives>(mesh_);
  TROUPE_CHECK(group->meet_first());
  return group;
}

}  // namespace troupe
