#include "models/ops/cpu/cpu_ops.hpp"

#include <algorithm>

#include "models/ops/cpu/cpu_components.hpp"

namespace troupe {

Result<DeviceTensor> allocate_on_cpu(DType dtype, const Shape& shape) {
  try {
    auto* owner = new HostTensor(dtype, shape);
    return DeviceTensor(owner->view(), [owner](void*) { delete owner; });
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::resource_exhausted, "no memory for {} bytes: a tensor {} of {}",
                static_cast<std::size_t>(shape.elements()) * size_of(dtype), shape.to_string(),
                to_string(dtype));
  }
}

void CpuSamplingOps::do_resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) {
  const auto* from = chosen.as<std::int32_t>();
  for (std::int32_t& id : ids.span<std::int32_t>()) {
    if (id < 0) id = std::max(from[-1 - id], 0);
  }
}

Result<std::unique_ptr<Ops>> make_cpu_ops(const CpuOpsOptions& options) {
  if (options.threads < 1) {
    return fail(ErrorCode::invalid_argument, "{} threads for the CPU's kernels: at least 1",
                options.threads);
  }
  if (options.dtype != DType::f32 && options.dtype != DType::bf16) {
    return fail(ErrorCode::invalid_argument, "model dtype {} on the CPU: use f32 or bf16",
                to_string(options.dtype));
  }
  CpuIsa isa = options.isa;
  if (isa == CpuIsa::best) isa = cpu_supports(CpuIsa::avx512) ? CpuIsa::avx512 : CpuIsa::avx2;
  if (!cpu_supports(isa)) {
    return fail(ErrorCode::unsupported, "this CPU has no {}",
                isa == CpuIsa::avx512 ? "AVX-512 (F, BW, DQ, VL)" : "AVX2 with FMA");
  }
  return std::unique_ptr<Ops>(std::make_unique<CpuOps>(options, kernels_for(isa)));
}

}  // namespace troupe
