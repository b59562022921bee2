#include "actors/worker/timed_collectives.hpp"

namespace troupe {

Result<void> TimedCollectives::all_reduce_tree(const Tensor& partial, const Tensor& sum) {
  const SpanScope scope(&recorder_, kind_);
  return ReplaceableCollectives::all_reduce_tree(partial, sum);
}

Result<void> TimedCollectives::reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                                   std::span<const std::int64_t> rows_per_rank) {
  const SpanScope scope(&recorder_, kind_);
  return ReplaceableCollectives::reduce_scatter_tree(partial, sum, rows_per_rank);
}

Result<void> TimedCollectives::all_gather(const Tensor& part, const Tensor& all,
                                          std::span<const std::int64_t> rows_per_rank) {
  const SpanScope scope(&recorder_, kind_);
  return ReplaceableCollectives::all_gather(part, all, rows_per_rank);
}

Result<void> TimedCollectives::broadcast(const Tensor& tensor, int root) {
  const SpanScope scope(&recorder_, kind_);
  return ReplaceableCollectives::broadcast(tensor, root);
}

Result<void> TimedCollectives::all_to_all(const Tensor& send,
                                          std::span<const std::int64_t> send_rows,
                                          const Tensor& receive,
                                          std::span<const std::int64_t> receive_rows) {
  const SpanScope scope(&recorder_, kind_);
  return ReplaceableCollectives::all_to_all(send, send_rows, receive, receive_rows);
}

Result<void> TimedCollectives::send(const Tensor& tensor, int to) {
  const SpanScope scope(&recorder_, kind_);
  return ReplaceableCollectives::send(tensor, to);
}

Result<void> TimedCollectives::receive(const Tensor& tensor, int from) {
  const SpanScope scope(&recorder_, kind_);
  return ReplaceableCollectives::receive(tensor, from);
}

Result<void> TimedCollectives::barrier() {
  const SpanScope scope(&recorder_, kind_);
  return ReplaceableCollectives::barrier();
}

Result<void> TimedCollectives::all_reduce_rms_norm(const AllReduceRmsNorm& sum) {
  const SpanScope scope(&recorder_, kind_);
  return ReplaceableCollectives::all_reduce_rms_norm(sum);
}

Result<void> TimedCollectives::columns_to_rows(const Tensor& part, const Tensor& whole,
                                               const Tensor& scratch) {
  const SpanScope scope(&recorder_, kind_);
  return ReplaceableCollectives::columns_to_rows(part, whole, scratch);
}

Result<void> TimedCollectives::library_all_reduce(const Tensor& partial, const Tensor& sum) {
  const SpanScope scope(&recorder_, kind_);
  return ReplaceableCollectives::library_all_reduce(partial, sum);
}

}  // namespace troupe
