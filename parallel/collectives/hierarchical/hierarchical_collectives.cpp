#include "parallel/collectives/hierarchical/hierarchical_collectives.hpp"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parallel/collectives/collective_checks.hpp"
#include "parallel/collectives/hierarchical/hierarchical_algorithms.hpp"
#include "parallel/collectives/two_shot.hpp"

namespace troupe {

namespace {

// The consecutive parts of `bytes`, as long as `sizes` says.
template <class Byte>
std::vector<std::span<Byte>> parts_of(std::span<Byte> bytes, std::span<const std::size_t> sizes) {
  std::vector<std::span<Byte>> parts;
  for (const std::size_t size : sizes) {
    parts.push_back(bytes.first(size));
    bytes = bytes.subspan(size);
  }
  return parts;
}

}  // namespace

HierarchicalCollectives::HierarchicalCollectives(std::unique_ptr<Collectives> node,
                                                 std::unique_ptr<NetworkCollectives> network,
                                                 std::vector<int> node_of)
    : group_{.layout = NodeLayout(network->rank(), std::move(node_of)),
             .node = std::move(node),
             .leaves = {},
             .partial_sums = {},
             .received = {},
             .outgoing = {},
             .incoming = {},
             .sent_here = {},
             .received_here = {},
             .network = std::move(network)} {
  if (group_.node) group_.network->when_closed([node = group_.node.get()] { node->abort(); });
}

void HierarchicalCollectives::set_timeout(std::chrono::milliseconds timeout) {
  Collectives::set_timeout(timeout);
  group_.network->set_timeout(timeout);
  if (group_.node) group_.node->set_timeout(timeout);
}

void HierarchicalCollectives::abort() {
  group_.network->abort();
  if (group_.node) group_.node->abort();
}

bool HierarchicalCollectives::aborted() const {
  return group_.network->aborted() || (group_.node && group_.node->aborted());
}

Tensor HierarchicalCollectives::staging(DType dtype, const Shape& shape) {
  // With several subtrees the terms go by all-to-all, which does not take staging memory.
  const NodeLayout& layout = group_.layout;
  if (group_.node && layout.subtrees_of(layout.own_node()) == 1) {
    return group_.node->staging(dtype, shape);
  }
  return {nullptr, dtype, shape};
}

template <class Body>
Result<void> HierarchicalCollectives::run(const Result<void>& checked, const Body& body) {
  if (failed_) {
    return fail(ErrorCode::cancelled, "collectives: rank {} of {}: the group has failed", rank(),
                size());
  }
  Result<void> done = checked ? body() : checked;
  if (done) return done;
  failed_ = true;
  const Result<void> links = group_.network->check();
  if (!links) {
    // The links know why the node's ranks were told to give up.
    if (done.error().code == ErrorCode::cancelled) done = links;
  } else if (checked && group_.node) {
    Error error = done.error();
    error.message += fmt::format(" (counted on this node, which has ranks {} of {})",
                                 fmt::join(group_.layout.members_here(), ", "), size());
    done = std::move(error);
  }
  abort();
  return done;
}

Result<void> HierarchicalCollectives::all_reduce_tree(const Tensor& partial, const Tensor& sum) {
  return run(check_all_reduce(partial, sum), [&] {
    const bool two_shot = group_.layout.nodes() > 2 && partial.bytes() > two_shot_above_bytes;
    return (two_shot ? hierarchical_all_reduce_two_shot : hierarchical_all_reduce_one_shot)(
        group_, partial.span<float>(), sum.span<float>(),
        {CollectiveCall::Kind::all_reduce, 0, partial.bytes()});
  });
}

Result<void> HierarchicalCollectives::reduce_scatter_tree(
    const Tensor& partial, const Tensor& sum, std::span<const std::int64_t> rows_per_rank) {
  return run(check_reduce_scatter(partial, sum, rows_per_rank, rank(), size()), [&] {
    return hierarchical_reduce_scatter(
        group_, partial.span<float>(), sum.span<float>(),
        scaled(rows_per_rank, static_cast<std::size_t>(row_elements(partial))),
        {CollectiveCall::Kind::reduce_scatter, 0, partial.bytes()});
  });
}

Result<void> HierarchicalCollectives::all_gather(const Tensor& part, const Tensor& all,
                                                 std::span<const std::int64_t> rows_per_rank) {
  return run(check_all_gather(part, all, rows_per_rank, rank(), size()), [&] {
    return hierarchical_all_gather(group_, bytes_of(part), bytes_of(all),
                                   scaled(rows_per_rank, row_bytes(all)),
                                   {CollectiveCall::Kind::all_gather, 0, all.bytes()});
  });
}

Result<void> HierarchicalCollectives::broadcast(const Tensor& tensor, int root) {
  const CollectiveCall call{CollectiveCall::Kind::broadcast, static_cast<std::uint32_t>(root),
                            tensor.bytes()};
  const NodeLayout& layout = group_.layout;
  return run(check_broadcast(root, size()), [&]() -> Result<void> {
    // The first rank of each other node gets it for all.
    const int here = layout.is_here(root) ? root : layout.members_here().front();
    Transfers transfers(size());
    if (rank() == root) {
      for (int node = 0; node < layout.nodes(); ++node) {
        if (node != layout.own_node()) {
          transfers.send(layout.members(node).front(), bytes_of(tensor));
        }
      }
    } else if (rank() == here) {
      transfers.receive(root, bytes_of(tensor));
    }
    TROUPE_CHECK(group_.network->exchange(call, std::move(transfers)));
    if (!group_.node) return {};
    return group_.node->broadcast(tensor, layout.place_of(here));
  });
}

Result<void> HierarchicalCollectives::all_to_all(const Tensor& send,
                                                 std::span<const std::int64_t> send_rows,
                                                 const Tensor& receive,
                                                 std::span<const std::int64_t> receive_rows) {
  return run(check_all_to_all(send, send_rows, receive, receive_rows, size()), [&] {
    const std::span<const std::byte> sent = bytes_of(send);
    return hierarchical_all_to_all(
        group_, parts_of(sent, scaled(send_rows, row_bytes(send))),
        parts_of(bytes_of(receive), scaled(receive_rows, row_bytes(receive))),
        {CollectiveCall::Kind::all_to_all, 0, row_bytes(send)});
  });
}

Result<void> HierarchicalCollectives::send(const Tensor& tensor, int to) {
  return run(check_peer("send", to, rank(), size()), [&] {
    const NodeLayout& layout = group_.layout;
    if (!layout.is_here(to)) return group_.network->send(tensor, to);
    return group_.node->send(tensor, layout.place_of(to));
  });
}

Result<void> HierarchicalCollectives::receive(const Tensor& tensor, int from) {
  return run(check_peer("receive", from, rank(), size()), [&] {
    const NodeLayout& layout = group_.layout;
    if (!layout.is_here(from)) return group_.network->receive(tensor, from);
    return group_.node->receive(tensor, layout.place_of(from));
  });
}

Result<void> HierarchicalCollectives::barrier() {
  return run({}, [&]() -> Result<void> {
    const NodeLayout& layout = group_.layout;
    if (group_.node) TROUPE_CHECK(group_.node->barrier());
    Transfers transfers(size());
    for (int node = 0; node < layout.nodes(); ++node) {
      if (layout.own_place() != 0 || node == layout.own_node()) continue;
      transfers.send(layout.members(node).front(), {});
      transfers.receive(layout.members(node).front(), {});
    }
    TROUPE_CHECK(
        group_.network->exchange({CollectiveCall::Kind::barrier, 0, 0}, std::move(transfers)));
    if (!group_.node) return {};
    return group_.node->barrier();
  });
}

}  // namespace troupe
