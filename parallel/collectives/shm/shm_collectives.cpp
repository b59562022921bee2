#include "parallel/collectives/shm/shm_collectives.hpp"

#include <vector>

#include "parallel/collectives/collective_checks.hpp"
#include "parallel/collectives/shm/shm_algorithms.hpp"
#include "parallel/collectives/two_shot.hpp"

namespace troupe {

std::size_t shm_collectives_bytes(int size, std::size_t slot_bytes, std::size_t mailbox_bytes) {
  return ShmRounds::region_bytes(size, slot_bytes) +
         ShmMailboxes::region_bytes(size, mailbox_bytes);
}

Result<std::unique_ptr<ShmCollectives>> ShmCollectives::attach(SharedMemory region, int rank,
                                                               int size,
                                                               std::size_t mailbox_bytes) {
  TROUPE_TRY(ShmRounds rounds, ShmRounds::attach(std::move(region), rank, size,
                                                 ShmMailboxes::region_bytes(size, mailbox_bytes)));
  return std::unique_ptr<ShmCollectives>(new ShmCollectives(std::move(rounds)));
}

ShmCollectives::ShmCollectives(ShmRounds rounds)
    : rounds_(std::move(rounds)), mailboxes_(rounds_) {}

Result<void> ShmCollectives::begin(Result<void> checked, CollectiveCall call) {
  // A rank that cannot take part must not leave the others waiting for it.
  TROUPE_CHECK(rounds_.begin(call, timeout()));
  if (!checked) rounds_.abort();
  return checked;
}

Result<void> ShmCollectives::all_reduce_tree(const Tensor& partial, const Tensor& sum) {
  Result<void> checked = check_all_reduce(partial, sum);
  if (checked && sum.data() == rounds_.own_slot().data()) {
    checked = fail(ErrorCode::invalid_argument, "all-reduce: the sum cannot go to staging memory");
  }
  TROUPE_CHECK(begin(checked, {CollectiveCall::Kind::all_reduce, 0, partial.bytes()}));
  const std::size_t count = static_cast<std::size_t>(partial.elements());
  // Two ranks gain from it only if neither can have staged its terms.
  const bool two_shot =
      partial.bytes() > (size() > 2 ? two_shot_above_bytes : rounds_.slot_bytes());
  return (two_shot ? shm_all_reduce_two_shot : shm_all_reduce_one_shot)(
      rounds_, partial.as<float>(), sum.as<float>(), count);
}

Result<void> ShmCollectives::reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                                 std::span<const std::int64_t> rows_per_rank) {
  TROUPE_CHECK(begin(check_reduce_scatter(partial, sum, rows_per_rank, rank(), size()),
                     {CollectiveCall::Kind::reduce_scatter, 0, partial.bytes()}));
  return shm_reduce_scatter(rounds_, partial.as<float>(), sum.as<float>(),
                            scaled(rows_per_rank, static_cast<std::size_t>(row_elements(partial))));
}

Result<void> ShmCollectives::all_gather(const Tensor& part, const Tensor& all,
                                        std::span<const std::int64_t> rows_per_rank) {
  TROUPE_CHECK(begin(check_all_gather(part, all, rows_per_rank, rank(), size()),
                     {CollectiveCall::Kind::all_gather, 0, all.bytes()}));
  return shm_all_gather(rounds_, bytes_of(part).data(), bytes_of(all).data(),
                        scaled(rows_per_rank, row_bytes(all)));
}

Result<void> ShmCollectives::broadcast(const Tensor& tensor, int root) {
  TROUPE_CHECK(
      begin(check_broadcast(root, size()),
            {CollectiveCall::Kind::broadcast, static_cast<std::uint32_t>(root), tensor.bytes()}));
  return shm_broadcast(rounds_, bytes_of(tensor).data(), tensor.bytes(), root);
}

Result<void> ShmCollectives::all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                                        const Tensor& receive,
                                        std::span<const std::int64_t> receive_rows) {
  TROUPE_CHECK(begin(check_all_to_all(send, send_rows, receive, receive_rows, size()),
                     {CollectiveCall::Kind::all_to_all, 0, row_bytes(send)}));
  return shm_all_to_all(rounds_, bytes_of(send).data(), scaled(send_rows, row_bytes(send)),
                        bytes_of(receive).data(), scaled(receive_rows, row_bytes(receive)));
}

Result<void> ShmCollectives::send(const Tensor& tensor, int to) {
  TROUPE_CHECK(begin(check_peer("send", to, rank(), size()),
                     {CollectiveCall::Kind::message, 0, tensor.bytes()}));
  return mailboxes_.send(bytes_of(tensor), to, timeout());
}

Result<void> ShmCollectives::receive(const Tensor& tensor, int from) {
  TROUPE_CHECK(begin(check_peer("receive", from, rank(), size()),
                     {CollectiveCall::Kind::message, 0, tensor.bytes()}));
  return mailboxes_.receive(bytes_of(tensor), from, timeout());
}

Result<void> ShmCollectives::barrier() {
  TROUPE_CHECK(begin({}, {CollectiveCall::Kind::barrier, 0, 0}));
  return rounds_.meet();
}

Tensor ShmCollectives::staging(DType dtype, const Shape& shape) {
  const Tensor view(rounds_.own_slot().data(), dtype, shape);
  return view.bytes() <= rounds_.slot_bytes() ? view : Tensor(nullptr, dtype, shape);
}

}  // namespace troupe
