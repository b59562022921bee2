#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace troupe {

/// Copies rows of `from` elements to rows of `to`. Longer rows are cut off, shorter ones are filled
/// with zeros. `from` and `to` are multiples of 8.
cudaError_t resize_rows(const __nv_bfloat16* rows, std::int64_t count, std::int64_t from,
                        __nv_bfloat16* resized, std::int64_t to, cudaStream_t stream);

}  // namespace troupe
