#include "models/ops/cuda/cuda_dense_ops.hpp"

#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t workspace_bytes = 64 << 20;
constexpr std::int64_t segment_parts = 16 << 20;  // f32

}  // namespace

Result<std::unique_ptr<CudaDenseOps>> CudaDenseOps::create(CudaContext& context) {
  std::unique_ptr<CudaDenseOps> dense(new CudaDenseOps(context));
  const bool tunes = context.options().autotunes_gemms;
  TROUPE_TRY(DeviceTensor workspace, context.allocate(DType::u8, {workspace_bytes}));
  if (context.deterministic()) {
    TROUPE_TRY(DeviceTensor parts, context.allocate(DType::f32, {segment_parts}));
    TROUPE_TRY(dense->gemms_.invariant,
               InvariantGemm::create({std::move(workspace), std::move(parts)}, tunes));
  } else {
    TROUPE_TRY(dense->gemms_.dense, DenseGemm::create(std::move(workspace), tunes));
  }
  return dense;
}

void CudaDenseOps::do_linear(const Linear& weight, const Tensor& x, const Tensor& out) {
  if (x[0] == 0) return;
  check(static_cast<const CudaLinear&>(weight).multiply(gemms_, x, out, stream()));
}

void CudaDenseOps::do_linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch,
                                     const Tensor& out) {
  if (x[0] == 0) return;
  const Tensor* matrix = static_cast<const CudaLinear&>(weight).plain();
  if (matrix != nullptr && gemms_.dense && gemms_.dense->multiplies_gated(*matrix, x)) {
    return check(gemms_.dense->multiply_gated(*matrix, x, out, stream()));
  }
  do_linear(weight, x, scratch);
  do_silu_mul(scratch, out);
}

}  // namespace troupe
