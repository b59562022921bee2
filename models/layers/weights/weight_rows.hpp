#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/device/tensor.hpp"

namespace troupe {

// Rearranges weights in host memory, before Ops packs them. Elements are copied unchanged.

/// Returns the rows of `matrix` [n, k] listed in `rows`, in that order.
HostTensor take_rows(const Tensor& matrix, std::span<const std::int64_t> rows);

/// Returns the rows of `upper` [n, k], then those of `lower` [m, k]; in f32 if their dtypes differ.
HostTensor stack_rows(const Tensor& upper, const Tensor& lower);

/// `matrix` [n, k] as [k, n].
HostTensor transposed(const Tensor& matrix);

/// The rows [first, first + dim) of a head in the order of rotation in halves
/// (AttentionOps::norm_rope_store): the first elements of all rotations, then the second ones. Only
/// the head's first `rotated` rows are rotated; the others are dealt to the ends of both halves.
/// With `interleaved` the checkpoint stores the two elements of each rotation side by side.
std::vector<std::int64_t> rows_to_rotate(std::int64_t first, std::int64_t dim, std::int64_t rotated,
                                         bool interleaved);

}  // namespace troupe
