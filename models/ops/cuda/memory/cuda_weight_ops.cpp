#include "models/ops/cuda/memory/cuda_weight_ops.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "models/ops/coded_matrix.hpp"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/gemm/invariant_gemm_kernel.hpp"
#include "models/ops/cuda/gemm/quantize_rows.hpp"
#include "models/ops/cuda/moe/grouped_gemm.hpp"
#include "models/ops/cuda/w8a8_cuda_linear.hpp"
#include "models/ops/expert_panels.hpp"
#include "parallel/device/convert.hpp"

namespace troupe {

namespace {

/// For parts of matrices of codes that become bf16.
constexpr std::int64_t decoded_elements = 64 << 20;

/// Makes a linear with a number of segments that deterministic GEMMs support.
std::unique_ptr<Linear> linear_of(DeviceTensor weight, int segments, std::string kernel = {}) {
  return std::make_unique<PlainCudaLinear>(
      std::move(weight), std::min(segments, max_invariant_segments), std::move(kernel));
}

/// The codes and scales of expert `e`, as a matrix of its own.
Tensor codes_of(const W8a8Matrix& all, std::int64_t e) {
  const Shape& shape = all.codes->shape();
  return all.codes->rows(e, 1).reshaped({shape[1], shape[2]});
}
Tensor scales_of(const W8a8Matrix& all, std::int64_t e) {
  return all.scales->rows(e, 1).reshaped({all.scales->shape()[1]});
}

/// `encoding` was asked for, and `obstacle` was in the way of codes.
std::unique_ptr<GroupedLinear> grouped_of(DeviceTensor all, WeightEncoding encoding,
                                          const std::string& obstacle = {}) {
  std::string kernel = encoding == WeightEncoding::plain ? "" : "numbers, not codes";
  if (!obstacle.empty()) kernel = fmt::format("numbers, not codes, {}", obstacle);
  return std::make_unique<CudaGroupedLinear>(std::move(all), std::move(kernel));
}

}  // namespace

Result<DeviceTensor> CudaWeightOps::prepare_table(const Tensor& weight) {
  TROUPE_TRY(DeviceTensor table, context_.allocate(dtype_, weight.shape()));
  TROUPE_CHECK(upload_weight(weight, table));
  return table;
}

Result<void> CudaWeightOps::upload_weight(const Tensor& weight, const Tensor& device) {
  if (weight.dtype() == dtype_) {
    context_.upload(weight, device);
    return context_.synchronize();
  }
  const HostTensor host(dtype_, weight.shape());
  convert(weight, host);
  context_.upload(host, device);
  return context_.synchronize();
}

bool CudaWeightOps::encodes(WeightEncoding encoding, std::int64_t n, std::int64_t k) const {
  return encoding == WeightEncoding::fp8 && multiplies_codes(WeightEncoding::fp8, n, k);
}

bool CudaWeightOps::multiplies_codes(WeightEncoding encoding, std::int64_t n,
                                     std::int64_t k) const {
  return context_.options().encoding == encoding && !deterministic_ && dtype_ == DType::bf16 &&
         W8a8Gemm::fits(n, k);
}

bool CudaWeightOps::rounds_rows_to_int8(const StoredMatrix& weight, WeightEncoding encoding) const {
  if (!multiplies_codes(WeightEncoding::w8a8, weight.rows, weight.columns)) return false;
  const auto form = coded_form(weight, encoding).form;
  return form && form->rounds_whole_rows();
}

bool CudaWeightOps::encodes_experts(WeightEncoding encoding, std::int64_t experts, std::int64_t n,
                                    std::int64_t k) const {
  constexpr float some_scale = 1.0F;
  GroupedGemm gemm;
  gemm.experts = experts;
  gemm.n = n;
  gemm.k = k;
  gemm.gated = true;
  gemm.weight_scales = &some_scale;
  return encodes(encoding, n, k) && grouped_gemm_fits(gemm);
}

Result<W8a8Matrix> CudaWeightOps::allocate_codes(const Shape& shape, CodeKind kind) {
  // First: nothing may fail, and take memory back, once uploads have begun.
  if (context_.options().widens_codes) TROUPE_CHECK(allocate_decoded());
  W8a8Matrix matrix{.codes = {}, .scales = {}, .kind = kind};
  const std::int64_t k = shape[shape.rank() - 1];
  const std::int64_t padding = (k + unit_columns - 1) / unit_columns * unit_columns - k;
  const std::int64_t rows = shape.elements() / k;
  TROUPE_TRY(matrix.codes,
             context_.allocate_unset(DType::u8, shape,
                                     context_.options().widens_codes ? rows * padding : 0));
  const Shape of_rows = shape.rank() == 3 ? Shape{shape[0], shape[1]} : Shape{shape[0]};
  TROUPE_TRY(matrix.scales, context_.allocate(DType::f32, of_rows));
  TROUPE_CHECK(context_.synchronize());  // uploads write scales by other streams: after the zeros
  return matrix;
}

PanelChoice CudaWeightOps::panels_of(std::span<const StoredMatrix> weights, WeightEncoding encoding,
                                     bool are_experts) const {
  if (encoding == WeightEncoding::fp8) encoding = WeightEncoding::plain;  // see encodes()
  PanelChoice choice =
      are_experts ? expert_panels(weights, encoding) : coded_panels(weights.front(), encoding);
  if (!choice.panels) return choice;
  if (deterministic_) return {.obstacle = "as deterministic GEMMs have no codes"};
  if (dtype_ != DType::bf16) return {.obstacle = "as GEMMs of f32 have no codes"};
  if (!hopper_kernels_run()) return {.obstacle = "as GEMMs of codes are for Hopper"};
  return choice;
}

Result<void> CudaWeightOps::allocate_decoded() {
  if (decoded_ != nullptr) return {};
  TROUPE_TRY(DeviceTensor decoded, context_.allocate_unset(dtype_, {decoded_elements}));
  decoded_ = std::make_shared<const DeviceTensor>(std::move(decoded));
  return {};
}

std::unique_ptr<Linear> CudaWeightOps::rounding_linear(W8a8Matrix matrix) {
  return std::make_unique<W8a8CudaLinear>(std::move(matrix),
                                          context_.options().widens_codes ? decoded_ : nullptr);
}

std::unique_ptr<GroupedLinear> CudaWeightOps::fp8_grouped(W8a8Matrix all) {
  return std::make_unique<CudaGroupedLinear>(std::move(all.codes), std::move(all.scales),
                                             context_.options().widens_codes ? decoded_ : nullptr);
}

Result<void> CudaWeightOps::widen(GroupedLinear& weight) {
  return static_cast<CudaGroupedLinear&>(weight).widen(stream());
}

Result<void> CudaWeightOps::widen(Linear& weight) {
  return static_cast<CudaLinear&>(weight).widen(stream());
}

std::unique_ptr<WeightUpload> CudaWeightOps::new_upload() {
  int devices = 1;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  return std::make_unique<WeightUpload>(WeightUpload::Options{
      .device = context_.device(), .dtype = dtype_, .threads = WeightUpload::threads_for(devices)});
}

Result<std::unique_ptr<Linear>> CudaWeightOps::load_row_codes(const StoredMatrix& weight,
                                                              WeightEncoding encoding,
                                                              WeightUpload& upload) {
  TROUPE_TRY(W8a8Matrix matrix, allocate_codes({weight.rows, weight.columns}, CodeKind::int8));
  upload.add_codes(weight, encoding, std::nullopt, matrix.codes, matrix.scales);
  return rounding_linear(std::move(matrix));
}

Result<std::unique_ptr<Linear>> CudaWeightOps::load_codes(const StoredMatrix& weight,
                                                          WeightEncoding encoding,
                                                          const CodedPanels& panels,
                                                          WeightUpload& upload) {
  TROUPE_CHECK(allocate_decoded());
  CodedMatrix matrix{.layout = panels};
  TROUPE_TRY(matrix.panels, context_.allocate_unset(DType::u8, {panels.code_bytes()}));
  if (panels.has_row_scales()) {
    TROUPE_TRY(matrix.row_scales, context_.allocate_unset(DType::f32, {panels.rows}));
  }
  upload.add_codes(weight, encoding, panels, matrix.panels,
                   panels.has_row_scales() ? matrix.row_scales.view() : Tensor());
  return std::unique_ptr<Linear>(std::make_unique<CodedCudaLinear>(std::move(matrix), decoded_));
}

Result<std::unique_ptr<GroupedLinear>> CudaWeightOps::load_codes(
    std::span<const StoredMatrix> experts, WeightEncoding encoding, const CodedPanels& panels,
    WeightUpload& upload) {
  const std::int64_t bytes = panels.code_bytes();
  const std::int64_t count = std::ssize(experts);
  TROUPE_TRY(DeviceTensor all, context_.allocate_unset(DType::u8, {count, bytes}));
  DeviceTensor row_scales;
  if (panels.has_row_scales()) {
    TROUPE_TRY(row_scales, context_.allocate_unset(DType::f32, {count, panels.rows}));
  }
  for (std::int64_t e = 0; e < count; ++e) {
    upload.add_codes(
        experts[static_cast<std::size_t>(e)], encoding, panels, all->rows(e, 1).reshaped({bytes}),
        panels.has_row_scales() ? row_scales->rows(e, 1).reshaped({panels.rows}) : Tensor());
  }
  return std::unique_ptr<GroupedLinear>(
      std::make_unique<CudaGroupedLinear>(std::move(all), std::move(row_scales), panels));
}

Result<std::unique_ptr<Linear>> CudaWeightOps::prepare(const Tensor& weight, int segments,
                                                       WeightEncoding encoding) {
  const StoredMatrix stored = stored_matrix_of(weight, dtype_);
  if (rounds_rows_to_int8(stored, encoding)) {
    const auto upload = new_upload();
    TROUPE_TRY(auto linear, load_row_codes(stored, encoding, *upload));
    TROUPE_TRY([[maybe_unused]] const LoadedWeights loaded, upload->finish({}));
    return linear;
  }
  if (const auto panels = panels_of({&stored, 1}, encoding, false).panels) {
    const auto upload = new_upload();
    TROUPE_TRY(auto linear, load_codes(stored, encoding, *panels, *upload));
    TROUPE_TRY([[maybe_unused]] const LoadedWeights loaded, upload->finish({}));
    return linear;
  }
  TROUPE_TRY(DeviceTensor table, prepare_table(weight));
  if (!encodes(encoding, weight[0], weight[1])) return linear_of(std::move(table), segments);
  TROUPE_TRY(W8a8Matrix matrix, allocate_codes(weight.shape()));
  check(launch_quantize_rows(table->data(), weight[0], weight[1],
                             {matrix.codes->as<std::uint8_t>(), matrix.scales->as<float>()},
                             stream()),
        "quantising a matrix");
  TROUPE_CHECK(context_.synchronize());
  return rounding_linear(std::move(matrix));
}

Result<std::unique_ptr<GroupedLinear>> CudaWeightOps::prepare_grouped(
    std::span<const Tensor> weights, int /*segments*/, WeightEncoding encoding) {
  const Shape& shape = weights.front().shape();
  const auto experts = static_cast<std::int64_t>(weights.size());
  if (encodes_experts(encoding, experts, shape[0], shape[1])) {
    TROUPE_TRY(W8a8Matrix codes, allocate_codes({experts, shape[0], shape[1]}));
    TROUPE_TRY(const DeviceTensor numbers, context_.allocate_unset(dtype_, shape));
    for (std::int64_t e = 0; e < experts; ++e) {
      TROUPE_CHECK(upload_weight(weights[static_cast<std::size_t>(e)], numbers));
      const CodedRows to{codes_of(codes, e).as<std::uint8_t>(), scales_of(codes, e).as<float>()};
      check(launch_quantize_rows(numbers->data(), shape[0], shape[1], to, stream()),
            "quantising experts");
    }
    TROUPE_CHECK(context_.synchronize());
    return fp8_grouped(std::move(codes));
  }
  std::vector<StoredMatrix> stored;
  for (const Tensor& weight : weights) stored.push_back(stored_matrix_of(weight, dtype_));
  if (const auto panels = panels_of(stored, encoding, true).panels) {
    const auto upload = new_upload();
    TROUPE_TRY(auto grouped, load_codes(stored, encoding, *panels, *upload));
    TROUPE_TRY([[maybe_unused]] const LoadedWeights loaded, upload->finish({}));
    return grouped;
  }
  TROUPE_TRY(DeviceTensor all, context_.allocate(dtype_, {experts, shape[0], shape[1]}));
  for (std::int64_t e = 0; e < experts; ++e) {
    TROUPE_CHECK(
        upload_weight(weights[static_cast<std::size_t>(e)], all->rows(e, 1).reshaped(shape)));
  }
  return grouped_of(std::move(all), encoding);
}

Result<std::unique_ptr<Linear>> CudaWeightOps::load(const StoredMatrix& weight, int segments,
                                                    WeightEncoding encoding) {
  if (encodes(encoding, weight.rows, weight.columns)) {
    TROUPE_TRY(W8a8Matrix matrix, allocate_codes({weight.rows, weight.columns}));
    begin_load(weight, matrix.codes, matrix.scales);
    return rounding_linear(std::move(matrix));
  }
  if (rounds_rows_to_int8(weight, encoding)) {
    if (upload_ == nullptr) upload_ = new_upload();
    return load_row_codes(weight, encoding, *upload_);
  }
  const PanelChoice choice = panels_of({&weight, 1}, encoding, false);
  if (choice.panels) {
    if (upload_ == nullptr) upload_ = new_upload();
    return load_codes(weight, encoding, *choice.panels, *upload_);
  }
  TROUPE_TRY(DeviceTensor table, load_table(weight));
  const bool says_why = !choice.obstacle.empty() && coded_form(weight, encoding).form;
  return linear_of(std::move(table), segments,
                   choice.obstacle.empty()
                       ? ""
                       : fmt::format("{}{}{}", to_string(dtype_), says_why ? ", " : "",
                                     says_why ? choice.obstacle : ""));
}

Result<std::unique_ptr<GroupedLinear>> CudaWeightOps::load_grouped(
    std::span<const StoredMatrix> weights, int /*segments*/, WeightEncoding encoding) {
  const Shape shape{weights.front().rows, weights.front().columns};
  const auto experts = static_cast<std::int64_t>(weights.size());
  if (encodes_experts(encoding, experts, shape[0], shape[1]) &&
      coded_form(weights, encoding).form) {
    TROUPE_TRY(W8a8Matrix codes, allocate_codes({experts, shape[0], shape[1]}));
    for (std::int64_t e = 0; e < experts; ++e) {
      begin_load(weights[static_cast<std::size_t>(e)], codes_of(codes, e), scales_of(codes, e));
    }
    return fp8_grouped(std::move(codes));
  }
  const PanelChoice choice = panels_of(weights, encoding, true);
  if (choice.panels) {
    if (upload_ == nullptr) upload_ = new_upload();
    return load_codes(weights, encoding, *choice.panels, *upload_);
  }
  TROUPE_TRY(DeviceTensor all, context_.allocate_unset(dtype_, {experts, shape[0], shape[1]}));
  for (std::int64_t e = 0; e < experts; ++e) {
    begin_load(weights[static_cast<std::size_t>(e)], all->rows(e, 1).reshaped(shape));
  }
  const bool says_why = coded_form(weights, encoding).form.has_value();
  return grouped_of(std::move(all), encoding, says_why ? choice.obstacle : "");
}

Result<DeviceTensor> CudaWeightOps::load_table(const StoredMatrix& weight) {
  TROUPE_TRY(DeviceTensor table, context_.allocate_unset(dtype_, {weight.rows, weight.columns}));
  begin_load(weight, table);
  return table;
}

void CudaWeightOps::begin_load(const StoredMatrix& weight, const Tensor& device,
                               const Tensor& scales) {
  if (upload_ == nullptr) upload_ = new_upload();
  upload_->add(weight, device, scales);
  const std::int64_t filled = weight.filled_rows();
  const Tensor rest = device.rows(filled, weight.rows - filled);
  check(cudaMemsetAsync(rest.data(), 0, rest.bytes(), stream()), "cudaMemset");
}

Result<LoadedWeights> CudaWeightOps::finish_loading(
    const std::function<void(const LoadedWeights&)>& progress) {
  const auto upload = std::move(upload_);  // whatever comes, it ends here: files and memory may go
  TROUPE_CHECK(context_.synchronize());
  return upload == nullptr ? LoadedWeights{} : upload->finish(progress);
}

std::unique_ptr<Linear> CudaWeightOps::share_table(const Tensor& table) {
  return std::make_unique<PlainCudaLinear>(DeviceTensor(table, [](void*) {}));
}

}  // namespace troupe
