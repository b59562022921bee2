#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/device/tensor.hpp"

namespace troupe {

// Rearrangements of weights in host memory, before Ops packs them. They copy elements as they are.

/// The rows of `matrix` [n, k] that `rows` names, in that order.
HostTensor take_rows(const Tensor& matrix, std::span<const std::int64_t> rows);

/// `matrix` [n, k] as [k, n].
HostTensor transposed(const Tensor& matrix);

/// The rows [first, first + dim) in the order of rotation in halves (Ops::norm_rope_store). With
/// `interleaved` the checkpoint has the two of each rotation side by side.
std::vector<std::int64_t> rows_to_rotate(std::int64_t first, std::int64_t dim, bool interleaved);

}  // namespace troupe
