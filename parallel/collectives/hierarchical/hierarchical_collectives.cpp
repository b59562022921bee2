#include "parallel/collectives/hierarchical/hierarchical_collectives.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parallel/collectives/collective_checks.hpp"
#include "parallel/collectives/tree_sum.hpp"

namespace troupe {
namespace {

using Sizes = std::vector<std::size_t>;

// Above this, over more than two nodes, two latencies cost less than sending everything to all.
constexpr std::size_t two_shot_above_bytes = 32u << 10;

// Views for calls on a node's collectives, which only read what is sent.
Tensor view(std::span<const float> values) {
  return {
      const_cast<float*>(values.data()), DType::f32, {static_cast<std::int64_t>(values.size())}};
}
Tensor view(std::span<const std::byte> bytes) {
  return {
      const_cast<std::byte*>(bytes.data()), DType::u8, {static_cast<std::int64_t>(bytes.size())}};
}

std::vector<std::int64_t> rows_of(std::span<const std::size_t> sizes) {
  return {sizes.begin(), sizes.end()};
}

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
}

std::size_t total(std::span<const std::size_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

// `count` spread over the first `takers` of `places`.
Sizes spread(std::size_t count, std::size_t takers, std::size_t places) {
  Sizes shares(places);
  const std::size_t share = (count + takers - 1) / takers;
  for (std::size_t i = 0; i < takers; ++i) {
    shares[i] = std::min(share, count - std::min(count, i * share));
  }
  return shares;
}

Sizes begins_of(std::span<const std::size_t> sizes) {
  Sizes begins(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), begins.begin(), std::size_t{0});
  return begins;
}

std::span<float> room_in(HostTensor& tensor, std::size_t count) {
  if (static_cast<std::size_t>(tensor->elements()) < count) {
    tensor = HostTensor(DType::f32, {static_cast<std::int64_t>(count)});
  }
  return tensor->span<float>().first(count);
}

}  // namespace

HierarchicalCollectives::HierarchicalCollectives(std::unique_ptr<Collectives> node,
                                                 std::unique_ptr<NetworkCollectives> network,
                                                 std::vector<int> node_of)
    : node_(std::move(node)),
      node_of_(std::move(node_of)),
      members_(static_cast<std::size_t>(std::ranges::max(node_of_)) + 1),
      subtrees_(largest_subtrees(node_of_)),
      network_(std::move(network)) {
  for (int r = 0; r < size(); ++r) {
    auto& ranks = members_[static_cast<std::size_t>(this->node_of(r))];
    places_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(r);
  }
  sum_carriers_ = std::ranges::min_element(members_, {}, &std::vector<int>::size)->size();
  if (node_) network_->when_closed([node = node_.get()] { node->abort(); });
}

void HierarchicalCollectives::set_timeout(std::chrono::milliseconds timeout) {
  Collectives::set_timeout(timeout);
  network_->set_timeout(timeout);
  if (node_) node_->set_timeout(timeout);
}

void HierarchicalCollectives::abort() {
  network_->abort();
  if (node_) node_->abort();
}

bool HierarchicalCollectives::aborted() const {
  return network_->aborted() || (node_ && node_->aborted());
}

Tensor HierarchicalCollectives::staging(DType dtype, const Shape& shape) {
  // With several subtrees the terms go by all-to-all, which does not take staging memory.
  if (node_ && subtrees_of(own_node()) == 1) return node_->staging(dtype, shape);
  return {nullptr, dtype, shape};
}

std::size_t HierarchicalCollectives::subtrees_of(int node) const {
  return static_cast<std::size_t>(std::ranges::count(subtrees_, node, &Subtree::node));
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
  const Result<void> links = network_->check();
  if (!links) {
    // The links know why the node's ranks were told to give up.
    if (done.error().code == ErrorCode::cancelled) done = links;
  } else if (checked && node_) {
    Error error = done.error();
    error.message += fmt::format(" (counted on this node, which has ranks {} of {})",
                                 fmt::join(members(own_node()), ", "), size());
    done = std::move(error);
  }
  abort();
  return done;
}

Result<HierarchicalCollectives::Floats> HierarchicalCollectives::sum_subtrees(
    Floats partial, std::span<const std::size_t> shares) {
  const auto place = static_cast<std::size_t>(place_of(rank()));
  const std::size_t count = shares[place];
  if (!node_) return partial;
  const auto rows = rows_of(shares);
  const std::size_t parts = subtrees_of(own_node());
  const auto sums = room_in(partial_sums_, parts * count);
  if (parts == 1) {
    TROUPE_CHECK(node_->reduce_scatter_tree(view(partial), view(sums), rows));
    return Floats(sums);
  }
  const std::size_t ranks = shares.size();
  const auto leaves = room_in(leaves_, ranks * count);
  TROUPE_CHECK(
      node_->all_to_all(view(partial), rows, view(leaves),
                        std::vector<std::int64_t>(ranks, static_cast<std::int64_t>(count))));
  float* out = sums.data();
  for (const Subtree& subtree : subtrees_) {
    if (subtree.node != own_node()) continue;
    std::vector<const float*> terms;
    for (int r = subtree.begin; r < subtree.end; ++r) {
      terms.push_back(leaves.data() + static_cast<std::size_t>(place_of(r)) * count);
    }
    tree_sum(terms, out, count);
    out += count;
  }
  return Floats(sums);
}

Result<void> HierarchicalCollectives::all_reduce_tree(const Tensor& partial, const Tensor& sum) {
  const CollectiveCall call{CollectiveCall::Kind::all_reduce, 0, partial.bytes()};
  return run(check_all_reduce(partial, sum), [&]() -> Result<void> {
    if (members_.size() == 2 || partial.bytes() <= two_shot_above_bytes) {
      return all_reduce(partial.span<float>(), sum.span<float>(), call);
    }
    const auto ranks = static_cast<std::size_t>(size());
    const Sizes shares = spread(static_cast<std::size_t>(partial.elements()), ranks, ranks);
    const Sizes begins = begins_of(shares);
    const auto own = static_cast<std::size_t>(rank());
    TROUPE_CHECK(reduce_scatter(partial.span<float>(),
                                sum.span<float>().subspan(begins[own], shares[own]), shares, call));
    Sizes bytes(ranks);
    for (std::size_t r = 0; r < ranks; ++r) bytes[r] = shares[r] * sizeof(float);
    return gather(bytes_of(sum).subspan(begins[own] * sizeof(float), bytes[own]), bytes_of(sum),
                  bytes, call);
  });
}

// The ranks at the same place of every node exchange their nodes' sums of one share of the elements
// and add all; then the ranks of each node gather the shares.
Result<void> HierarchicalCollectives::all_reduce(Floats partial, std::span<float> sum,
                                                 const CollectiveCall& call) {
  const auto place = static_cast<std::size_t>(place_of(rank()));
  const Sizes shares = spread(partial.size(), sum_carriers_, members(own_node()).size());
  TROUPE_TRY(const Floats own, sum_subtrees(partial, shares));
  const auto share = sum.subspan(begins_of(shares)[place], shares[place]);
  Transfers transfers(size());
  std::vector<const float*> sums(subtrees_.size());
  if (place < sum_carriers_) {
    float* room = room_in(received_, subtrees_.size() * share.size()).data();
    for (int node = 0; node < static_cast<int>(members_.size()); ++node) {
      const int peer = members(node)[place];
      const std::span<float> theirs(room, subtrees_of(node) * share.size());
      const float* next = node == own_node() ? own.data() : theirs.data();
      for (std::size_t t = 0; t < subtrees_.size(); ++t) {
        if (subtrees_[t].node == node) sums[t] = std::exchange(next, next + share.size());
      }
      if (node == own_node()) continue;
      room += theirs.size();
      transfers.send(peer, std::as_bytes(own));
      transfers.receive(peer, std::as_writable_bytes(theirs));
    }
  }
  TROUPE_CHECK(network_->exchange(call, std::move(transfers)));
  if (place < sum_carriers_) {
    // Of a rank that is alone on its node, `sum` may be the term itself.
    const bool in_place = own.data() == share.data();
    const auto out = in_place ? room_in(partial_sums_, share.size()) : share;
    add_subtrees(subtrees_, sums, out.data(), out.size());
    if (in_place) copy(std::as_bytes(out), std::as_writable_bytes(share));
  }
  if (!node_) return {};
  return node_->all_gather(view(share), view(sum), rows_of(shares));
}

Result<void> HierarchicalCollectives::reduce_scatter_tree(
    const Tensor& partial, const Tensor& sum, std::span<const std::int64_t> rows_per_rank) {
  const CollectiveCall call{CollectiveCall::Kind::reduce_scatter, 0, partial.bytes()};
  return run(check_reduce_scatter(partial, sum, rows_per_rank, rank(), size()), [&] {
    return reduce_scatter(partial.span<float>(), sum.span<float>(),
                          scaled(rows_per_rank, static_cast<std::size_t>(row_elements(partial))),
                          call);
  });
}

// Each rank of a node adds up the node's subtrees for an equal share of the elements, and sends
// every other rank what of that is the other's. Writes `sum` last, so that it may be part of
// `partial`.
Result<void> HierarchicalCollectives::reduce_scatter(Floats partial, std::span<float> sum,
                                                     std::span<const std::size_t> elements_per_rank,
                                                     const CollectiveCall& call) {
  const Sizes begins = begins_of(elements_per_rank);
  const auto shares_of = [&](int node) {
    return spread(partial.size(), members(node).size(), members(node).size());
  };
  // What of rank r's elements is in the share of rank s, from the share's begin on.
  struct Part {
    std::size_t begin, count;
  };
  const auto part_of = [&](int r, int s) -> Part {
    const Sizes shares = shares_of(node_of(s));
    const auto place = static_cast<std::size_t>(place_of(s));
    const std::size_t share = begins_of(shares)[place];
    const std::size_t end = share + shares[place];
    const std::size_t first = begins[static_cast<std::size_t>(r)];
    const std::size_t last = first + elements_per_rank[static_cast<std::size_t>(r)];
    const std::size_t from = std::clamp(first, share, end);
    return {from - share, std::clamp(last, share, end) - from};
  };
  const Sizes shares = shares_of(own_node());
  const std::size_t share = shares[static_cast<std::size_t>(place_of(rank()))];
  TROUPE_TRY(const Floats own, sum_subtrees(partial, shares));
  const std::size_t parts = subtrees_of(own_node());
  std::vector<float> outgoing;
  Sizes send(static_cast<std::size_t>(size())), receive(static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    const Part part = part_of(r, rank());
    for (std::size_t t = 0; t < parts; ++t) {
      const auto from = own.subspan(t * share + part.begin, part.count);
      outgoing.insert(outgoing.end(), from.begin(), from.end());
    }
    send[static_cast<std::size_t>(r)] = parts * part.count * sizeof(float);
    receive[static_cast<std::size_t>(r)] =
        subtrees_of(node_of(r)) * part_of(rank(), r).count * sizeof(float);
  }
  std::vector<float> incoming(total(receive) / sizeof(float));
  TROUPE_CHECK(exchange(std::as_bytes(std::span(outgoing)), send,
                        std::as_writable_bytes(std::span(incoming)), receive, call));
  // From rank s came, for each subtree of its node, this rank's elements in its share.
  const auto terms = room_in(received_, subtrees_.size() * sum.size());
  std::vector<const float*> sums(subtrees_.size());
  const float* next = incoming.data();
  for (int s = 0; s < size(); ++s) {
    const auto place = static_cast<std::size_t>(place_of(s));
    const Part part = part_of(rank(), s);
    const std::size_t at = part.count == 0 ? 0
                                           : begins_of(shares_of(node_of(s)))[place] + part.begin -
                                                 begins[static_cast<std::size_t>(rank())];
    for (std::size_t t = 0; t < subtrees_.size(); ++t) {
      if (subtrees_[t].node != node_of(s)) continue;
      std::copy_n(std::exchange(next, next + part.count), part.count,
                  terms.begin() + static_cast<std::ptrdiff_t>(t * sum.size() + at));
    }
  }
  for (std::size_t t = 0; t < sums.size(); ++t) sums[t] = terms.data() + t * sum.size();
  add_subtrees(subtrees_, sums, sum.data(), sum.size());
  return {};
}

Result<void> HierarchicalCollectives::all_gather(const Tensor& part, const Tensor& all,
                                                 std::span<const std::int64_t> rows_per_rank) {
  const CollectiveCall call{CollectiveCall::Kind::all_gather, 0, all.bytes()};
  return run(check_all_gather(part, all, rows_per_rank, rank(), size()), [&] {
    return gather(bytes_of(part), bytes_of(all), scaled(rows_per_rank, row_bytes(all)), call);
  });
}

// A rank sends its part to one rank of every other node; then the ranks of each node gather what
// they have got.
Result<void> HierarchicalCollectives::gather(std::span<const std::byte> part,
                                             std::span<std::byte> all,
                                             std::span<const std::size_t> bytes_per_rank,
                                             const CollectiveCall& call) {
  const Sizes begins = begins_of(bytes_per_rank);
  const auto slice = [&](int r) {
    return all.subspan(begins[static_cast<std::size_t>(r)],
                       bytes_per_rank[static_cast<std::size_t>(r)]);
  };
  // The rank of a node that gets rank r's part from outside, or has it.
  const auto receiver = [&](int r, int node) {
    const auto& ranks = members(node);
    return node == node_of(r) ? r : ranks[static_cast<std::size_t>(place_of(r)) % ranks.size()];
  };
  Transfers transfers(size());
  copy(part, slice(rank()));
  for (int node = 0; node < static_cast<int>(members_.size()); ++node) {
    if (node != own_node()) transfers.send(receiver(rank(), node), part);
  }
  Sizes gathered(members(own_node()).size());
  std::vector<std::byte> mine;
  for (int r = 0; r < size(); ++r) {
    const int here = receiver(r, own_node());
    gathered[static_cast<std::size_t>(place_of(here))] += slice(r).size();
    if (here == rank() && r != rank()) transfers.receive(r, slice(r));
  }
  TROUPE_CHECK(network_->exchange(call, std::move(transfers)));
  if (!node_) return {};
  for (int r = 0; r < size(); ++r) {
    if (receiver(r, own_node()) == rank())
      mine.insert(mine.end(), slice(r).begin(), slice(r).end());
  }
  std::vector<std::byte> everything(total(gathered));
  TROUPE_CHECK(node_->all_gather(view(mine), view(std::span<const std::byte>(everything)),
                                 rows_of(gathered)));
  Sizes next = begins_of(gathered);
  for (int r = 0; r < size(); ++r) {
    std::size_t& from = next[static_cast<std::size_t>(place_of(receiver(r, own_node())))];
    copy(std::span(everything).subspan(from, slice(r).size()), slice(r));
    from += slice(r).size();
  }
  return {};
}

Result<void> HierarchicalCollectives::broadcast(const Tensor& tensor, int root) {
  const CollectiveCall call{CollectiveCall::Kind::broadcast, static_cast<std::uint32_t>(root),
                            tensor.bytes()};
  return run(check_broadcast(root, size()), [&]() -> Result<void> {
    // The first rank of each other node gets it for all.
    const int here = own_node() == node_of(root) ? root : members(own_node()).front();
    Transfers transfers(size());
    if (rank() == root) {
      for (const auto& ranks : members_) {
        if (node_of(ranks.front()) != own_node()) transfers.send(ranks.front(), bytes_of(tensor));
      }
    } else if (rank() == here) {
      transfers.receive(root, bytes_of(tensor));
    }
    TROUPE_CHECK(network_->exchange(call, std::move(transfers)));
    if (!node_) return {};
    return node_->broadcast(tensor, place_of(here));
  });
}

Result<void> HierarchicalCollectives::all_to_all(const Tensor& send,
                                                 std::span<const std::int64_t> send_rows,
                                                 const Tensor& receive,
                                                 std::span<const std::int64_t> receive_rows) {
  const CollectiveCall call{CollectiveCall::Kind::all_to_all, 0, row_bytes(send)};
  return run(check_all_to_all(send, send_rows, receive, receive_rows, size()), [&] {
    return exchange(bytes_of(send), scaled(send_rows, row_bytes(send)), bytes_of(receive),
                    scaled(receive_rows, row_bytes(receive)), call);
  });
}

// Bytes for each rank and from each, in order of rank: between nodes by the links, within one
// through its memory.
Result<void> HierarchicalCollectives::exchange(std::span<const std::byte> send,
                                               std::span<const std::size_t> send_bytes,
                                               std::span<std::byte> receive,
                                               std::span<const std::size_t> receive_bytes,
                                               const CollectiveCall& call) {
  const Sizes send_begins = begins_of(send_bytes), receive_begins = begins_of(receive_bytes);
  const auto& here = members(own_node());
  Transfers transfers(size());
  std::vector<std::byte> outgoing, incoming;
  Sizes to_node, from_node;
  for (std::size_t r = 0; r < send_bytes.size(); ++r) {
    const auto theirs = send.subspan(send_begins[r], send_bytes[r]);
    if (node_of(static_cast<int>(r)) != own_node()) {
      transfers.send(static_cast<int>(r), theirs);
      transfers.receive(static_cast<int>(r), receive.subspan(receive_begins[r], receive_bytes[r]));
      continue;
    }
    to_node.push_back(send_bytes[r]);
    from_node.push_back(receive_bytes[r]);
    outgoing.insert(outgoing.end(), theirs.begin(), theirs.end());
  }
  if (node_) {
    incoming.resize(total(from_node));
    TROUPE_CHECK(node_->all_to_all(view(outgoing), rows_of(to_node),
                                   view(std::span<const std::byte>(incoming)), rows_of(from_node)));
  } else if (to_node != from_node) {
    return fail(ErrorCode::invalid_argument,
                "all-to-all: rank {} sends {} bytes to itself, but expects {}", rank(),
                to_node.front(), from_node.front());
  } else {
    incoming = std::move(outgoing);
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < here.size(); ++i) {
    const auto r = static_cast<std::size_t>(here[i]);
    copy(std::span(incoming).subspan(next, from_node[i]),
         receive.subspan(receive_begins[r], from_node[i]));
    next += from_node[i];
  }
  return network_->exchange(call, std::move(transfers));
}

Result<void> HierarchicalCollectives::send(const Tensor& tensor, int to) {
  return run(check_peer("send", to, rank(), size()), [&] {
    if (node_of(to) != own_node()) return network_->send(tensor, to);
    return node_->send(tensor, place_of(to));
  });
}

Result<void> HierarchicalCollectives::receive(const Tensor& tensor, int from) {
  return run(check_peer("receive", from, rank(), size()), [&] {
    if (node_of(from) != own_node()) return network_->receive(tensor, from);
    return node_->receive(tensor, place_of(from));
  });
}

Result<void> HierarchicalCollectives::barrier() {
  return run({}, [&]() -> Result<void> {
    if (node_) TROUPE_CHECK(node_->barrier());
    Transfers transfers(size());
    if (place_of(rank()) == 0) {
      for (const auto& ranks : members_) {
        if (ranks.front() == rank()) continue;
        transfers.send(ranks.front(), {});
        transfers.receive(ranks.front(), {});
      }
    }
    TROUPE_CHECK(network_->exchange({CollectiveCall::Kind::barrier, 0, 0}, std::move(transfers)));
    if (!node_) return {};
    return node_->barrier();
  });
}

}  // namespace troupe
