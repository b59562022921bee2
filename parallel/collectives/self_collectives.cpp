#include "parallel/collectives/self_collectives.hpp"

#include <cstring>

#include "parallel/collectives/collective_checks.hpp"

namespace troupe {

namespace {

void copy(const Tensor& from, const Tensor& to) {
  if (from.data() != to.data() && from.bytes() > 0) {
    std::memcpy(to.data(), from.data(), from.bytes());
  }
}

}  // namespace

Result<void> SelfCollectives::check_alive() const {
  if (!aborted()) return {};
  return fail(ErrorCode::cancelled, "collectives: the group of one rank was aborted");
}

Result<void> SelfCollectives::all_reduce_tree(const Tensor& partial, const Tensor& sum) {
  TROUPE_CHECK(check_alive());
  TROUPE_CHECK(check_all_reduce(partial, sum));
  copy(partial, sum);
  return {};
}

Result<void> SelfCollectives::reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                                  std::span<const std::int64_t> rows_per_rank) {
  TROUPE_CHECK(check_alive());
  TROUPE_CHECK(check_reduce_scatter(partial, sum, rows_per_rank, 0, 1));
  copy(partial, sum);
  return {};
}

Result<void> SelfCollectives::all_gather(const Tensor& part, const Tensor& all,
                                         std::span<const std::int64_t> rows_per_rank) {
  TROUPE_CHECK(check_alive());
  TROUPE_CHECK(check_all_gather(part, all, rows_per_rank, 0, 1));
  copy(part, all);
  return {};
}

Result<void> SelfCollectives::broadcast(const Tensor&, int root) {
  TROUPE_CHECK(check_alive());
  return check_broadcast(root, 1);
}

Result<void> SelfCollectives::all_to_all(const Tensor& send,
                                         std::span<const std::int64_t> send_rows,
                                         const Tensor& receive,
                                         std::span<const std::int64_t> receive_rows) {
  TROUPE_CHECK(check_alive());
  TROUPE_CHECK(check_all_to_all(send, send_rows, receive, receive_rows, 1));
  if (send_rows[0] != receive_rows[0]) {
    return fail(ErrorCode::invalid_argument,
                "all-to-all: rank 0 sends {} rows to itself, expects {}", send_rows[0],
                receive_rows[0]);
  }
  copy(send, receive);
  return {};
}

Result<void> SelfCollectives::send(const Tensor&, int to) {
  TROUPE_CHECK(check_alive());
  return check_peer("send", to, 0, 1);
}

Result<void> SelfCollectives::receive(const Tensor&, int from) {
  TROUPE_CHECK(check_alive());
  return check_peer("receive", from, 0, 1);
}

Result<void> SelfCollectives::barrier() { return check_alive(); }

void SelfCollectives::abort() { aborted_.store(true, std::memory_order_release); }

Tensor SelfCollectives::staging(DType dtype, const Shape& shape) { return {nullptr, dtype, shape}; }

}  // namespace troupe
