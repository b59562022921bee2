#pragma once

#include <memory>

#include "models/ops/ops.hpp"

namespace troupe {

struct CudaOpsOptions {
  int device = 0;            ///< of this process, as CUDA counts
  DType dtype = DType::f32;  ///< the model's dtype, f32 or bf16
  /// bf16 GEMMs use the algorithm that measured fastest, which may differ between runs; otherwise
  /// the first of cuBLASLt's heuristic.
  bool autotunes_gemms = true;
  /// A row of any operation has the same bits whatever the batch and on every GPU of a kind; a
  /// row-parallel GEMM is the tree sum of its segments, at most max_invariant_segments over all
  /// ranks. bf16 only.
  bool deterministic = false;
  /// With fp8 or w8a8, matrices may be codes that are multiplied with rows that become such codes,
  /// too (W8A8): bf16, not deterministic.
  WeightEncoding encoding = WeightEncoding::plain;
  /// Dense ones of these may be widened (WeightOps::widen): the 128 MiB that it needs are taken
  /// with the first.
  bool widens_codes = false;
  /// Prefixes that sequences share are read together also where this does not pay (cascade_pays).
  bool always_cascades = false;
};

/// Ops on an NVIDIA GPU. Operations are enqueued on one stream; an Ops is used by one thread at a
/// time, which may change.
///
/// Weights and activations have the dtype of the options: f32 GEMMs are exact fp32 (no TF32), bf16
/// ones accumulate in fp32 on tensor cores. Without `deterministic` a row's bits may differ: in
/// dense GEMMs between batches of up to 8 rows, more rows that decode_gemm_suits, and the size
/// classes with their own cuBLASLt algorithm (rows_bucket); in experts between up to 8 tokens and
/// more; in attention between passes of different lengths. allocate_kv wants an even head_dim of at
/// most 576; keys are [blocks, kv_heads, block_size, head_dim], values the same. Codes want a
/// head_dim of at most 256 that 4 divides, and no latents; pages are CodedPages. plan() is for
/// caches of the dtype that allocate_kv was last called with.
///
/// The next synchronize() reports a failed operation, with its name and the device.
///
/// Errors: invalid_argument for another dtype; not_found if there is no such device; unsupported if
/// it is too old for the code in this build.
Result<std::unique_ptr<Ops>> make_cuda_ops(const CudaOpsOptions& options);

/// True if kernels of this build can run on a device.
bool cuda_device_runs_this_build(int device);

}  // namespace troupe
