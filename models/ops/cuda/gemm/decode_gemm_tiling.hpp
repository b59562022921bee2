// What decode_gemm's kernel and the choice of its tiling share.
#pragma once

#include <cstdint>

#include "models/ops/cuda/gemm/decode_gemm.hpp"

namespace troupe::cuda {

constexpr int group_rows = 64;     // of the weight
constexpr int row_bytes = 128;     // of a tile in shared memory: the swizzle's row length
constexpr int max_deep_rows = 32;  // of a block that has more steps of k under way
/// Of a row whose codes blocks make: columns, and steps of k of a block.
constexpr std::int64_t max_coded_k = 16384;
constexpr int max_coded_steps = 64;

/// True if each block has a multiprocessor for itself and few rows: then it has more steps of k
/// under way.
bool reads_deep(const DecodeGemm& gemm, DecodeGemmTiling tiling);

/// decode_gemm_makes_codes with this tiling.
bool makes_codes(const DecodeGemm& gemm, DecodeGemmTiling tiling);

}  // namespace troupe::cuda
