#include <new>
#include <optional>
#include <vector>

#include "models/ops/coded_matrix.hpp"
#include "models/ops/cpu/cpu_components.hpp"
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

Result<PackedWeights> CpuWeightOps::pack_codes(std::span<const StoredMatrix> weights,
                                               const CodedForm& form, int segments) {
  try {
    TROUPE_TRY(PackedWeights packed,
               PackedWeights::pack_codes(weights, form, segments, context_.pool()));
    context_.reserve_scratch(gemm_scratch_floats(packed.k(), segments));
    return packed;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::resource_exhausted,
                "no memory to pack the codes of {} matrices [{}, {}]", weights.size(),
                weights.front().rows, weights.front().columns);
  }
}

Result<std::unique_ptr<Linear>> CpuWeightOps::prepare(const Tensor& weight, int segments,
                                                      WeightEncoding encoding) {
  if (encoding != WeightEncoding::plain) {
    const DType dtype = stored_dtype(weight.dtype(), context_.dtype());
    return load(stored_matrix_of(weight, dtype), segments, encoding);
  }
  TROUPE_TRY(PackedWeights packed, pack(std::span(&weight, 1), segments));
  return std::unique_ptr<Linear>(std::make_unique<CpuLinear>(std::move(packed)));
}

Result<std::unique_ptr<GroupedLinear>> CpuWeightOps::prepare_grouped(
    std::span<const Tensor> weights, int segments, WeightEncoding encoding) {
  if (encoding != WeightEncoding::plain) {
    const DType dtype = stored_dtype(weights.front().dtype(), context_.dtype());
    std::vector<StoredMatrix> stored;
    for (const Tensor& weight : weights) stored.push_back(stored_matrix_of(weight, dtype));
    return load_grouped(stored, segments, encoding);
  }
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
  if (const auto form = coded_form(weight, encoding).form) {
    TROUPE_TRY(PackedWeights packed, pack_codes({&weight, 1}, *form, segments));
    return std::unique_ptr<Linear>(std::make_unique<CpuLinear>(std::move(packed)));
  }
  return with_host_memory({&weight, 1}, [&](std::span<const Tensor> host) {
    return prepare(host.front(), segments, WeightEncoding::plain);
  });
}

Result<std::unique_ptr<GroupedLinear>> CpuWeightOps::load_grouped(
    std::span<const StoredMatrix> weights, int segments, WeightEncoding encoding) {
  if (const auto form = coded_form(weights, encoding).form) {
    TROUPE_TRY(PackedWeights packed, pack_codes(weights, *form, segments));
    return std::unique_ptr<GroupedLinear>(std::make_unique<CpuGroupedLinear>(std::move(packed)));
  }
  return with_host_memory(weights, [&](std::span<const Tensor> host) {
    return prepare_grouped(host, segments, WeightEncoding::plain);
  });
}

Result<DeviceTensor> CpuWeightOps::load_table(const StoredMatrix& weight) {
  return with_host_memory(
      {&weight, 1}, [&](std::span<const Tensor> host) { return prepare_table(host.front()); });
}

}  // namespace troupe
