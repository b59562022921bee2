#pragma once

#include <cstdint>
#include <memory>

#include "models/ops/ops.hpp"

namespace troupe {

/// The kernels' instruction set. All give the same bits; `best` asks the CPU.
enum class CpuIsa { best, avx2, avx512 };

struct CpuOpsOptions {
  int threads = 1;           ///< the calling thread included; >= 1
  DType dtype = DType::f32;  ///< the model's dtype, f32 or bf16
  CpuIsa isa = CpuIsa::best;
  bool cores_are_shared = false;  ///< workers have more threads than there are cores
};

/// True if this CPU can run kernels of `isa`.
bool cpu_supports(CpuIsa isa);

/// `prepare` and `prepare_grouped` store the rows of a matrix in panels of this many, so a matrix
/// takes the memory of the next multiple.
inline constexpr std::int64_t cpu_panel_rows = 32;

/// Ops on the CPU. Operations run synchronously, on the calling thread and `threads - 1` threads of
/// its own, which sleep between operations; an Ops is used by one thread at a time.
///
/// Weights given as bf16 stay bf16; f32 and f16 ones become f32 for dtype f32 and are rounded to
/// bf16 for dtype bf16. Results of GEMMs and activations are f32. allocate_kv takes heads of any
/// size, and a block_size that is a multiple of 16; head sizes that are multiples of 16 are fast.
///
/// Errors: invalid_argument for a thread count below 1 or another dtype; unsupported if the CPU
/// lacks the requested instruction set (or AVX2, which is always needed).
Result<std::unique_ptr<Ops>> make_cpu_ops(const CpuOpsOptions& options);

}  // namespace troupe
