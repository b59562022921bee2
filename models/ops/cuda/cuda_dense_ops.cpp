#include "models/ops/cuda/cuda_dense_ops.hpp"

#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t workspace_bytes = 64 << 20;
constexpr std::int64_t segment_parts = 16 << 20;    // f32
constexpr std::int64_t max_code_bytes = 256 << 20;  // of rows of x: 16,384 of 16,384 columns
constexpr std::int64_t max_coded_rows = 16384;

Result<void> codes_unread() {
  return fail(ErrorCode::internal, "rows of which only codes were made are not multiplied next");
}

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
    const WeightEncoding encoding = context.options().encoding;
    if (encoding == WeightEncoding::fp8 || encoding == WeightEncoding::w8a8) {
      TROUPE_TRY(DeviceTensor codes, context.allocate(DType::u8, {max_code_bytes}));
      TROUPE_TRY(DeviceTensor scales, context.allocate(DType::f32, {max_coded_rows}));
      dense->gemms_.w8a8 = std::make_unique<W8a8Gemm>(
          encoding == WeightEncoding::fp8 ? CodeKind::e4m3 : CodeKind::int8, *dense->gemms_.dense,
          *context.outputs(), W8a8Gemm::Memory{std::move(codes), std::move(scales)});
    }
  }
  return dense;
}

std::optional<CodedRows> CudaDenseOps::room_for_codes(const Tensor& rows) const {
  if (gemms_.w8a8 == nullptr || rows.dtype() != DType::bf16) return std::nullopt;
  return gemms_.w8a8->room_for(rows[0], rows[1]);
}

std::optional<CodedRows> CudaDenseOps::codes_of(const Tensor& rows) const {
  const bool are_there =
      gemms_.w8a8 != nullptr && context_.uses() == coded_at_ && gemms_.w8a8->is_coded(rows);
  return are_there ? gemms_.w8a8->room_for(rows[0], rows[1]) : std::nullopt;
}

bool CudaDenseOps::reads_only_codes(const Linear* next) {
  return next != nullptr && static_cast<const CudaLinear&>(*next).codes() != nullptr;
}

void CudaDenseOps::set_coded(const Tensor& rows, bool only_codes) {
  if (std::exchange(only_coded_, only_codes ? rows.data() : nullptr) != nullptr) {
    check(codes_unread());
  }
  gemms_.w8a8->set_coded(rows);
  coded_at_ = context_.uses();
}

void CudaDenseOps::check_codes() {
  if (gemms_.w8a8 != nullptr && context_.uses() != coded_at_) gemms_.w8a8->set_coded({});
}

bool CudaDenseOps::has_numbers_or_codes(const Tensor& x) {
  const void* const rows = std::exchange(only_coded_, nullptr);
  if (rows == nullptr || (rows == x.data() && gemms_.w8a8->is_coded(x))) return true;
  check(codes_unread());
  return false;
}

void CudaDenseOps::do_linear(const Linear& weight, const Tensor& x, const Tensor& out) {
  if (x[0] == 0) return;
  check_codes();
  if (!has_numbers_or_codes(x)) return;
  check(static_cast<const CudaLinear&>(weight).multiply(gemms_, x, out, stream()));
  if (out.data() == x.data()) return;
  // Another matrix may take the codes of x, which has not changed; other rows may be in `out` now.
  if (gemms_.w8a8 != nullptr && !gemms_.w8a8->is_coded(x)) gemms_.w8a8->set_coded({});
  coded_at_ = context_.uses();
}

void CudaDenseOps::do_linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch,
                                     const Tensor& out, const Linear* next) {
  if (x[0] == 0) return;
  check_codes();
  if (!has_numbers_or_codes(x)) return;
  const Result<bool> done =
      static_cast<const CudaLinear&>(weight).multiply_gated(gemms_, x, out, stream());
  if (!done.ok()) return check(done.error());
  if (*done) return;
  coded_at_ = context_.uses();  // nothing was enqueued: codes of x are still those
  do_linear(weight, x, scratch);
  if (!reads_only_codes(next) || !silu_mul_coded(scratch, out, true)) do_silu_mul(scratch, out);
}

}  // namespace troupe
