#pragma once

#include <memory>

#include "models/ops/ops.hpp"

namespace troupe {

struct CudaOpsOptions {
  int device = 0;            ///< the process's, counted by CUDA
  DType dtype = DType::f32;  ///< the model's dtype, f32 or bf16
  /// bf16 products take the algorithm that was measured to be fastest, which may be another one
  /// next time; else the one that cuBLASLt advises.
  bool autotunes_gemms = true;
  /// A row of any operation has the same bits whatever the batch and on every GPU of a kind; a
  /// row-parallel product is the tree sum of its segments, of which all ranks together have at most
  /// max_invariant_segments. bf16 alone.
  bool deterministic = false;
};

/// Ops on an NVIDIA GPU. Operations are enqueued on one stream; an Ops is used by one thread at a
/// time, of any threads.
///
/// Weights and activations have the dtype of the options: f32 products are exact fp32 (no TF32),
/// bf16 ones are accumulated in fp32 on tensor cores. Unless `deterministic` asks for more, a row's
/// bits may differ: of dense products between batches of up to 8 rows, more that decode_gemm_suits,
/// and those of the sizes that cuBLASLt is given an algorithm each (rows_bucket); of experts
/// between up to 8 tokens and more; of attention between passes of other lengths. allocate_kv wants
/// a head_dim of at most 576 that is even; keys are [blocks, kv_heads, block_size, head_dim],
/// values the same.
///
/// A failing operation is told by the next synchronize(), with its name and the device.
///
/// invalid_argument for another dtype; not_found if there is no such device; unsupported if it is
/// too old for the code in this build.
Result<std::unique_ptr<Ops>> make_cuda_ops(const CudaOpsOptions& options);

/// Whether kernels of this build can run on a device.
bool cuda_device_runs_this_build(int device);

}  // namespace troupe
