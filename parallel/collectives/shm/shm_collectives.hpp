#pragma once

#include <memory>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/shm/shm_mailboxes.hpp"
#include "parallel/collectives/shm/shm_rounds.hpp"
#include "runtime/memory/shared_memory.hpp"

namespace troupe {

/// Default bytes of a mailbox, of which every ordered pair of ranks has one.
inline constexpr std::size_t default_mailbox_bytes = 1u << 20;

/// Bytes of the region that `size` ranks (1..64) share, each with two slots of `slot_bytes`, and
/// mailboxes of `mailbox_bytes` (> 0; both rounded up to 4 KiB). Larger tensors and messages pass
/// through in pieces. Memory that no call has touched costs nothing.
std::size_t shm_collectives_bytes(int size, std::size_t slot_bytes = 1u << 20,
                                  std::size_t mailbox_bytes = default_mailbox_bytes);

/// Collectives between processes of one node (or threads) over a region of shared memory. A zeroed
/// SharedMemory of shm_collectives_bytes() is ready for use: one process creates it, every rank
/// maps it and attaches, in any order. A region serves one group once: a group that failed needs a
/// new one.
///
/// send() returns at once if the mailbox has room for the message and 16 bytes more, otherwise when
/// the receiver has taken all but a mailbox's worth. Its timeout, and that of receive(), is for the
/// whole message.
///
/// Waiting spins about 2 us if there are enough cores for the ranks, then sleeps in a futex.
class ShmCollectives final : public Collectives {
 public:
  /// `mailbox_bytes` is what shm_collectives_bytes() was given. Errors: invalid_argument if the
  /// region is too small, or laid out for another size or other mailboxes; already_exists if the
  /// rank is taken.
  static Result<std::unique_ptr<ShmCollectives>> attach(
      SharedMemory region, int rank, int size, std::size_t mailbox_bytes = default_mailbox_bytes);

  int rank() const override { return rounds_.rank(); }
  int size() const override { return rounds_.size(); }
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
  void abort() override { rounds_.abort(); }
  bool aborted() const override { return rounds_.aborted(); }
  Tensor staging(DType dtype, const Shape& shape) override;

 private:
  explicit ShmCollectives(ShmRounds rounds);
  Result<void> begin(Result<void> checked, CollectiveCall call);

  ShmRounds rounds_;
  ShmMailboxes mailboxes_;  // refers to rounds_
};

}  // namespace troupe
