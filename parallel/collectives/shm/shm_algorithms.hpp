#pragma once

#include <cstdint>
#include <span>

#include "parallel/collectives/shm/shm_rounds.hpp"

namespace troupe {

/// The algorithms behind ShmCollectives, one a file. Arguments are checked and rounds.begin() has
/// been called; every rank makes the same sequence of rounds, which follows from arguments that all
/// ranks agree on. Errors are those of ShmRounds::meet().

/// Every rank sums all slots: one round for each slot's worth. Best for few ranks or bytes.
/// `partial` may equal `sum` or be this rank's slot of the coming round (then one slot's worth at
/// most).
Result<void> shm_all_reduce_one_shot(ShmRounds& rounds, const float* partial, float* sum,
                                     std::size_t count);

/// Every rank sums its part of a slot's worth, then the parts are gathered: two rounds, but each
/// rank reads every byte twice instead of size() times. Arguments as for one_shot.
Result<void> shm_all_reduce_two_shot(ShmRounds& rounds, const float* partial, float* sum,
                                     std::size_t count);

/// Rank r sums elements_per_rank[r] elements of all ranks' `partial` (f32, their sum in all).
Result<void> shm_reduce_scatter(ShmRounds& rounds, const float* partial, float* sum,
                                std::span<const std::size_t> elements_per_rank);

Result<void> shm_all_gather(ShmRounds& rounds, const std::byte* part, std::byte* all,
                            std::span<const std::size_t> bytes_per_rank);

Result<void> shm_broadcast(ShmRounds& rounds, std::byte* bytes, std::size_t count, int root);

/// `send_bytes` to and `receive_bytes` from each rank, in order of rank.
Result<void> shm_all_to_all(ShmRounds& rounds, const std::byte* send,
                            std::span<const std::size_t> send_bytes, std::byte* receive,
                            std::span<const std::size_t> receive_bytes);

}  // namespace troupe
