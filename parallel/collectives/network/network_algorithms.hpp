#pragma once

#include <cstddef>
#include <span>

#include "parallel/collectives/network/network_exchange.hpp"

namespace troupe {

/// The algorithms behind NetworkCollectives, one a file. Arguments are checked and exchange.begin()
/// has been called. Sums are added in the order of tree_sum.hpp. Errors are those of
/// NetworkExchange::run().

/// Every rank sends its terms to all and sums all: one latency. `partial` may equal `sum`.
Result<void> network_all_reduce_one_shot(NetworkExchange& exchange, std::span<const float> partial,
                                         std::span<float> sum);

/// Every rank sums its part, then the parts are gathered: two latencies, but each rank sends twice
/// the bytes instead of size() - 1 times. `partial` may equal `sum`.
Result<void> network_all_reduce_two_shot(NetworkExchange& exchange, std::span<const float> partial,
                                         std::span<float> sum);

/// Rank r sums elements_per_rank[r] elements of all ranks' `partial`. `sum` may be the slice of
/// `partial` that holds its elements.
Result<void> network_reduce_scatter(NetworkExchange& exchange, std::span<const float> partial,
                                    std::span<float> sum,
                                    std::span<const std::size_t> elements_per_rank);

Result<void> network_all_gather(NetworkExchange& exchange, std::span<const std::byte> part,
                                std::span<std::byte> all,
                                std::span<const std::size_t> bytes_per_rank);

Result<void> network_broadcast(NetworkExchange& exchange, std::span<std::byte> bytes, int root);

/// `send_bytes` to and `receive_bytes` from each rank, in order of rank.
Result<void> network_all_to_all(NetworkExchange& exchange, std::span<const std::byte> send,
                                std::span<const std::size_t> send_bytes,
                                std::span<std::byte> receive,
                                std::span<const std::size_t> receive_bytes);

Result<void> network_barrier(NetworkExchange& exchange);

}  // namespace troupe
