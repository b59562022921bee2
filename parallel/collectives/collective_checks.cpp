#include "parallel/collectives/collective_checks.hpp"

#include <numeric>
#include <string_view>

#include "parallel/sharding/sharding.hpp"

namespace troupe {

namespace {

Result<void> check_f32(std::string_view call, const Tensor& tensor) {
  if (tensor.dtype() == DType::f32) return {};
  return fail(ErrorCode::invalid_argument, "{} sums f32, found {} {}", call,
              to_string(tensor.dtype()), tensor.shape().to_string());
}

Result<void> check_summed(std::string_view call, const Tensor& partial, const Tensor& sum) {
  const bool floats = partial.dtype() == DType::f32 && sum.dtype() == DType::f32;
  const bool halves =
      partial.dtype() == DType::bf16 && (sum.dtype() == DType::f32 || sum.dtype() == DType::bf16);
  if (floats || halves) return {};
  return fail(ErrorCode::invalid_argument,
              "{} sums f32 to f32 or bf16 to f32 or bf16, found {} {} to {}", call,
              to_string(partial.dtype()), partial.shape().to_string(), to_string(sum.dtype()));
}

Result<void> check_elements(const Tensor& partial, const Tensor& sum) {
  if (partial.elements() == sum.elements()) return {};
  return fail(ErrorCode::invalid_argument, "all-reduce: partial {} and sum {} differ in size",
              partial.shape().to_string(), sum.shape().to_string());
}

// `tensor` must have sum(rows) rows, and `rows` one non-negative entry per rank.
Result<void> check_rows(std::string_view call, const Tensor& tensor,
                        std::span<const std::int64_t> rows, int size) {
  if (rows.size() != static_cast<std::size_t>(size)) {
    return fail(ErrorCode::invalid_argument, "{}: row counts of {} ranks given, the group has {}",
                call, rows.size(), size);
  }
  for (const std::int64_t count : rows) {
    if (count < 0) return fail(ErrorCode::invalid_argument, "{}: {} rows of a rank", call, count);
  }
  const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  if (tensor.shape().rank() < 1 || tensor[0] != total) {
    return fail(ErrorCode::invalid_argument, "{}: the ranks' rows add up to {}, found {}", call,
                total, tensor.shape().to_string());
  }
  return {};
}

// `part` must have `rows` rows like those of `whole`.
Result<void> check_part(std::string_view call, const Tensor& part, const Tensor& whole,
                        std::int64_t rows) {
  if (part.dtype() == whole.dtype() && part.shape().rank() >= 1 && part[0] == rows &&
      row_elements(part) == row_elements(whole)) {
    return {};
  }
  return fail(ErrorCode::invalid_argument, "{}: expected {} rows of {} {}, found {} {}", call, rows,
              to_string(whole.dtype()), whole.shape().to_string(), to_string(part.dtype()),
              part.shape().to_string());
}

}  // namespace

std::int64_t row_elements(const Tensor& tensor) {
  std::int64_t elements = 1;
  for (int i = 1; i < tensor.shape().rank(); ++i) elements *= tensor[i];
  return elements;
}

Result<void> check_all_reduce(const Tensor& partial, const Tensor& sum) {
  TROUPE_CHECK(check_f32("all-reduce", partial));
  TROUPE_CHECK(check_f32("all-reduce", sum));
  return check_elements(partial, sum);
}

Result<void> check_device_all_reduce(const Tensor& partial, const Tensor& sum) {
  TROUPE_CHECK(check_summed("all-reduce", partial, sum));
  return check_elements(partial, sum);
}

Result<void> check_reduce_scatter(const Tensor& partial, const Tensor& sum,
                                  std::span<const std::int64_t> rows_per_rank, int rank, int size) {
  TROUPE_CHECK(check_f32("reduce-scatter", partial));
  TROUPE_CHECK(check_rows("reduce-scatter", partial, rows_per_rank, size));
  return check_part("reduce-scatter", sum, partial, rows_per_rank[static_cast<std::size_t>(rank)]);
}

Result<void> check_device_reduce_scatter(const Tensor& partial, const Tensor& sum,
                                         std::span<const std::int64_t> rows_per_rank, int rank,
                                         int size) {
  TROUPE_CHECK(check_summed("reduce-scatter", partial, sum));
  TROUPE_CHECK(check_rows("reduce-scatter", partial, rows_per_rank, size));
  return check_part("reduce-scatter", Tensor(sum.data(), partial.dtype(), sum.shape()), partial,
                    rows_per_rank[static_cast<std::size_t>(rank)]);
}

Result<void> check_all_reduce_rms_norm(const AllReduceRmsNorm& sum, int rank, int size) {
  TROUPE_CHECK(check_device_all_reduce(sum.partial, sum.normed));
  const std::int64_t rows = sum.partial[0], width = row_elements(sum.partial);
  const std::int64_t own = sum.divided ? ceil_slice(rows, {rank, size}).count : rows;
  if (sum.residual.elements() >= own * width && sum.weight.elements() == width) return {};
  return fail(ErrorCode::invalid_argument,
              "sum and norm: rank {} of {} adds {} to a residual stream of {}, by {} weights", rank,
              size, sum.partial.shape().to_string(), sum.residual.shape().to_string(),
              sum.weight.elements());
}

Result<void> check_all_gather(const Tensor& part, const Tensor& all,
                              std::span<const std::int64_t> rows_per_rank, int rank, int size) {
  TROUPE_CHECK(check_rows("all-gather", all, rows_per_rank, size));
  return check_part("all-gather", part, all, rows_per_rank[static_cast<std::size_t>(rank)]);
}

Result<void> check_broadcast(int root, int size) {
  if (root >= 0 && root < size) return {};
  return fail(ErrorCode::invalid_argument, "broadcast: root {} of {} ranks", root, size);
}

Result<void> check_peer(std::string_view operation, int peer, int rank, int size) {
  if (peer >= 0 && peer < size && peer != rank) return {};
  return fail(ErrorCode::invalid_argument, "{}: rank {} of {} names rank {} as the other one",
              operation, rank, size, peer);
}

Result<void> check_all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                              const Tensor& receive, std::span<const std::int64_t> receive_rows,
                              int size) {
  TROUPE_CHECK(check_rows("all-to-all", send, send_rows, size));
  TROUPE_CHECK(check_rows("all-to-all", receive, receive_rows, size));
  return check_part("all-to-all", receive, send, receive[0]);
}

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data()), tensor.bytes()};
}

std::size_t row_bytes(const Tensor& tensor) {
  return static_cast<std::size_t>(row_elements(tensor)) * size_of(tensor.dtype());
}

std::vector<std::size_t> scaled(std::span<const std::int64_t> rows, std::size_t factor) {
  std::vector<std::size_t> result;
  for (const std::int64_t count : rows) result.push_back(static_cast<std::size_t>(count) * factor);
  return result;
}

}  // namespace troupe
