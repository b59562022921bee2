#pragma once

#include <cstdint>

#include "models/ops/attention_ops.hpp"
#include "models/ops/dense_ops.hpp"
#include "models/ops/memory_ops.hpp"
#include "models/ops/moe_ops.hpp"
#include "models/ops/sampling_ops.hpp"
#include "models/ops/stream_ops.hpp"
#include "models/ops/weight_ops.hpp"
#include "parallel/device/dtype.hpp"

namespace troupe {

/// The only interface to a device: dense kernels on views, in components. One Ops per rank, used by
/// one thread. Components share the device and one order of operations, and live as long as the
/// Ops.
///
/// Every operation only enqueues (the CPU's run synchronously), allocates nothing that grows with
/// calls and never waits for the device; inputs must stay valid until StreamOps::synchronize.
/// Shapes and dtypes are checked in builds with assertions (op_checks.hpp), not in release builds.
/// Activations are `activation_dtype()`: f32 on CPU. Weights are stored as bf16 if that loses
/// nothing or the model's dtype is bf16, otherwise as f32; GEMMs accumulate in f32.
///
/// Exactness (docs/architecture.md): an output row depends only on its own input row and the
/// weights; each element of a GEMM is one chain of fused multiply-adds over k in ascending order
/// within a segment; the segments of a row-parallel matrix are added as a fixed binary tree.
class Ops {
 public:
  virtual ~Ops() = default;

  virtual DType activation_dtype() const = 0;

  /// The number of rows on which consecutive operations are best carried out at once, so that the
  /// output of one is still in a near cache for the next.
  virtual std::int64_t rows_at_once() const = 0;

  virtual MemoryOps& memory() = 0;
  virtual StreamOps& stream() = 0;
  virtual WeightOps& weights() = 0;
  virtual DenseOps& dense() = 0;
  virtual AttentionOps& attention() = 0;
  virtual MoeOps& moe() = 0;
  virtual SamplingOps& sampling() = 0;
};

}  // namespace troupe
