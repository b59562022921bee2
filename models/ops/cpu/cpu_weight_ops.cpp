#include <algorithm>
#include <iterator>
#include <new>
#include <vector>

#include "models/ops/cpu/cpu_components.hpp"
#include "models/ops/fp8_rows.hpp"
#include "models/ops/stored_matrix.hpp"
#include "parallel/device/convert.hpp"

namespace troupe {
namespace {

/// `read` with the matrices in host memory.
template <class Read>
auto with_host_memory(std::span<const StoredMatrix> matrices, const Read& read)
    -> decltype(read(std::span<const Tensor>())) {
  std::vector<HostTensor> owners;
  std::vector<Tensor> views;
  try {
    for (const StoredMatrix& matrix : matrices) {
      owners.push_back(in_host_memory(matrix));
      views.push_back(owners.back());
    }
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::resource_exhausted, "no memory to read {} matrices [{}, {}]",
                matrices.size(), matrices.front().rows, matrices.front().columns);
  }
  return read(views);
}

}  // namespace

Result<PackedWeights> CpuWeightOps::pack(std::span<const Tensor> weights, int segments) {
  try {
    TROUPE_TRY(PackedWeights packed, PackedWeights::pack(weights, segments, context_.dtype()));
    context_.reserve_scratch(gemm_scratch_floats(packed.k(), segments));
    return packed;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::resource_exhausted, "no memory to pack {} matrices of {}",
                weights.size(), weights[0].shape().to_string());
  }
}

Result<std::unique_ptr<Linear>> CpuWeightOps::prepare(const Tensor& weight, int segments,
                                                      WeightEncoding encoding) {
  if (encoding == WeightEncoding::fp8) {
    return prepare(rounded_to_fp8(weight), segments, WeightEncoding::plain);
  }
  TROUPE_TRY(PackedWeights packed, pack(std::span(&weight, 1), segments));
  return std::unique_ptr<Linear>(std::make_unique<CpuLinear>(std::move(packed)));
}

Result<std::unique_ptr<GroupedLinear>> CpuWeightOps::prepare_grouped(
    std::span<const Tensor> weights, int segments) {
  TROUPE_TRY(PackedWeights packed, pack(weights, segments));
  return std::unique_ptr<GroupedLinear>(std::make_unique<CpuGroupedLinear>(std::move(packed)));
}

Result<DeviceTensor> CpuWeightOps::prepare_table(const Tensor& weight) {
  const DType dtype = stored_dtype(weight.dtype(), context_.dtype());
  TROUPE_TRY(DeviceTensor table, allocate_on_cpu(dtype, weight.shape()));
  convert(weight, table);
  return table;
}

Result<std::unique_ptr<Linear>> CpuWeightOps::load(const StoredMatrix& weight, int segments,
                                                   WeightEncoding encoding) {
  return with_host_memory(
      {&weight, 1}, [&](std::span<const Tensor> host) -> Result<std::unique_ptr<Linear>> {
        if (encoding == WeightEncoding::plain) return prepare(host.front(), segments, encoding);
        std::vector<float> scales;
        for (const StoredPart& part : weight.parts) {
          std::ranges::copy(
              fp8_scales(part, weight.dtype == DType::bf16 ? DType::bf16 : DType::f32),
              std::back_inserter(scales));
        }
        return prepare(rounded_to_fp8(host.front(), scales), segments, WeightEncoding::plain);
      });
}

Result<std::unique_ptr<GroupedLinear>> CpuWeightOps::load_grouped(
    std::span<const StoredMatrix> weights, int segments) {
  return with_host_memory(
      weights, [&](std::span<const Tensor> host) { return prepare_grouped(host, segments); });
}

Result<DeviceTensor> CpuWeightOps::load_table(const StoredMatrix& weight) {
  return with_host_memory(
      {&weight, 1}, [&](std::span<const Tensor> host) { return prepare_table(host.front()); });
}

}  // namespace troupe
