#include "models/ops/cpu/kernels.hpp"

#include <algorithm>

namespace troupe {

// A widened panel, then at least three tiles of 14 rows in chunks of 272 floats; more until half a
// megabyte, which stays in a core's second-level cache, is full.
std::int64_t gemm_scratch_floats(std::int64_t k, int segments) {
  const std::int64_t segment_k = k / segments;
  const std::int64_t tile = segments * ((segment_k + 255) / 256) * 14 * 272;
  return k * panel_columns + std::max<std::int64_t>(3 * tile, 128 * 1024);
}

bool cpu_supports(CpuIsa isa) {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa != CpuIsa::avx512) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const Kernels& kernels_for(CpuIsa isa) {
  static const Kernels narrow{avx2::gemm,       avx2::gemm_of_codes,     avx2::gemm_of_int8,
                              avx2::attention,  avx2::attention_weights, avx2::index_scores,
                              avx2::row_kernels};
  static const Kernels wide{
      avx512::gemm,
      avx512::gemm_of_codes,
      __builtin_cpu_supports("avx512vnni") ? avx512vnni::gemm_of_int8 : avx2::gemm_of_int8,
      avx512::attention,
      avx512::attention_weights,
      avx512::index_scores,
      avx512::row_kernels};
  return isa == CpuIsa::avx512 ? wide : narrow;
}

}  // namespace troupe
