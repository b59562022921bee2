#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/device/tensor.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Checks of the arguments of one rank that every implementation of Collectives makes; each
/// function returns the invalid_argument of the operation it is named after.

Result<void> check_all_reduce(const Tensor& partial, const Tensor& sum);
Result<void> check_reduce_scatter(const Tensor& partial, const Tensor& sum,
                                  std::span<const std::int64_t> rows_per_rank, int rank, int size);
Result<void> check_all_gather(const Tensor& part, const Tensor& all,
                              std::span<const std::int64_t> rows_per_rank, int rank, int size);
Result<void> check_broadcast(int root, int size);
Result<void> check_peer(std::string_view operation, int peer, int rank, int size);
Result<void> check_all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                              const Tensor& receive, std::span<const std::int64_t> receive_rows,
                              int size);

/// The same for sums on devices, whose partial sums may be bf16: then the sum is f32 or bf16.
Result<void> check_device_all_reduce(const Tensor& partial, const Tensor& sum);
Result<void> check_device_reduce_scatter(const Tensor& partial, const Tensor& sum,
                                         std::span<const std::int64_t> rows_per_rank, int rank,
                                         int size);
Result<void> check_all_reduce_rms_norm(const AllReduceRmsNorm& sum, int rank, int size);

/// The bytes of a tensor in host memory.
std::span<std::byte> bytes_of(const Tensor& tensor);
/// Elements of one row of a tensor of rank >= 1.
std::int64_t row_elements(const Tensor& tensor);
/// Bytes of one such row.
std::size_t row_bytes(const Tensor& tensor);
/// Every count of rows times `factor`: the elements or bytes of each rank.
std::vector<std::size_t> scaled(std::span<const std::int64_t> rows, std::size_t factor);

}  // namespace troupe
