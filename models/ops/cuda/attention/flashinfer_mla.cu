#include <exception>
#include <utility>
#include <vector>

#include <cuda_bf16.h>
#include <flashinfer/attention/mla_hopper.cuh>
#include <flashinfer/attention/scheduler.cuh>

#include "models/ops/attention_limits.hpp"
#include "models/ops/cuda/attention/flashinfer_mla.hpp"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/gpu_attention.hpp"

namespace troupe {
namespace {

using Element = __nv_bfloat16;
using Id = std::int32_t;
using Parameters = flashinfer::MLAParams<Element, Element, Element, Id>;

constexpr std::int64_t latent_dim = 512, rotated_dim = 64;
constexpr std::size_t sums_bytes = std::size_t{24} << 20;

}  // namespace

class FlashInferMla::Plan : public BatchPlan {
 public:
  static constexpr std::size_t bytes = std::size_t{1} << 20;

  using BatchPlan::BatchPlan;
  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch, std::byte* sums,
                    cudaStream_t stream);
  Parameters parameters(std::byte* sums) const;
  const flashinfer::MLAPlanInfo& info() const { return info_; }

 private:
  Id* planned(std::int64_t offset) const {
    return reinterpret_cast<Id*>(memory_->device() + offset);
  }

  flashinfer::MLAPlanInfo info_{};
};

Result<void> FlashInferMla::Plan::make(const AttentionShape& shape, const AttentionBatch& batch,
                                       std::byte* sums, cudaStream_t stream) {
  std::vector<Id> rows, pages, positions;
  std::int64_t tiles = 0;
  for (const SequenceSpan& span : batch.sequences) {
    rows.push_back(span.first_row);
    pages.push_back(span.block_offset);
    positions.push_back(span.first_position + span.rows);
    tiles += (span.rows * shape.heads + latent_tile_rows - 1) / latent_tile_rows;
  }
  rows.push_back(batch.sequences.back().first_row + batch.sequences.back().rows);
  if (tiles > max_latent_tiles) {
    return fail(ErrorCode::resource_exhausted,
                "latent attention of {} heads takes at most {} tokens a pass: lower "
                "engine.max_num_batched_tokens",
                shape.heads, max_latent_tiles * latent_tile_rows / shape.heads);
  }
  TROUPE_TRY(std::byte* const host, memory_->next());
  std::size_t used = 0;
  const cudaError_t planned = flashinfer::MLAPlan<Id>(
      sums, sums_bytes, memory_->device(), host, memory_->bytes(), info_, used, rows.data(),
      pages.data(), positions.data(), static_cast<std::uint32_t>(batch.sequences.size()),
      static_cast<std::uint32_t>(shape.heads), static_cast<std::uint32_t>(shape.latent), true,
      stream);
  TROUPE_CHECK(cuda_done(planned, "the plan of latent attention"));
  return memory_->upload(used, stream);
}

Parameters FlashInferMla::Plan::parameters(std::byte* sums) const {
  Parameters parameters{};
  parameters.q_indptr = planned(info_.q_indptr_offset);
  parameters.kv_indptr = planned(info_.kv_indptr_offset);
  parameters.partial_indptr = planned(info_.partial_indptr_offset);
  parameters.merge_packed_offset_start = planned(info_.merge_packed_offset_start_offset);
  parameters.merge_packed_offset_end = planned(info_.merge_packed_offset_end_offset);
  parameters.merge_partial_packed_offset_start =
      planned(info_.merge_partial_packed_offset_start_offset);
  parameters.merge_partial_packed_offset_end =
      planned(info_.merge_partial_packed_offset_end_offset);
  parameters.merge_partial_stride = planned(info_.merge_partial_stride_offset);
  parameters.q_len = planned(info_.q_len_offset);
  parameters.kv_len = planned(info_.kv_len_offset);
  parameters.q_start = planned(info_.q_start_offset);
  parameters.kv_start = planned(info_.kv_start_offset);
  parameters.kv_end = planned(info_.kv_end_offset);
  parameters.work_indptr = planned(info_.work_indptr_offset);
  parameters.partial_o = reinterpret_cast<Element*>(sums + info_.partial_o_offset);
  parameters.partial_lse = reinterpret_cast<float*>(sums + info_.partial_lse_offset);
  return parameters;
}

FlashInferMla::~FlashInferMla() = default;

Result<std::unique_ptr<FlashInferMla>> FlashInferMla::create() {
  std::unique_ptr<FlashInferMla> attention(new FlashInferMla());
  return Result<std::unique_ptr<FlashInferMla>>(std::move(attention));
}

bool FlashInferMla::supports(const AttentionShape& shape, DType stored, DType activation) {
  return hopper_kernels_run() && activation == DType::bf16 && stored == DType::bf16 &&
         flashinfer_latent_takes(shape);
}

Result<void> FlashInferMla::plan(const AttentionShape& shape, const AttentionBatch& batch,
                                 cudaStream_t stream) {
  if (sums_.bytes() == 0) {
    TROUPE_TRY(sums_, DeviceBuffer::allocate(sums_bytes, "memory for attention"));
  }
  try {
    TROUPE_TRY(Plan* const plan, plans_.of(batch, stream));
    return plan->make(shape, batch, sums_.data(), stream);
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, "plan of latent attention: {}", error.what());
  }
}

Result<void> FlashInferMla::attend(const Tensor& q, const AttentionShape& shape,
                                   const AttentionBatch& batch, const KvLayer& cache,
                                   const Tensor& out, cudaStream_t stream) {
  TROUPE_TRY(const Plan* const plan, plans_.made_for(batch));
  const auto heads = static_cast<std::uint32_t>(shape.heads);
  const auto dim = static_cast<std::uint32_t>(shape.head_dim);
  const auto block_size = static_cast<std::uint32_t>(batch.block_size);
  Parameters parameters = plan->parameters(sums_.data());
  // A row of the cache, and of a query head, is the latent part and then the rotated one.
  parameters.q_nope = static_cast<Element*>(q.data());
  parameters.q_pe = parameters.q_nope + latent_dim;
  parameters.q_nope_stride_n = parameters.q_pe_stride_n = heads * dim;
  parameters.q_nope_stride_h = parameters.q_pe_stride_h = dim;
  parameters.ckv = static_cast<Element*>(cache.keys.data());
  parameters.kpe = parameters.ckv + latent_dim;
  parameters.ckv_stride_page = parameters.kpe_stride_page = block_size * dim;
  parameters.ckv_stride_n = parameters.kpe_stride_n = dim;
  parameters.kv_indices = batch.block_tables.as<Id>();
  parameters.final_o = static_cast<Element*>(out.data());
  parameters.final_lse = nullptr;
  parameters.o_stride_n = heads * static_cast<std::uint32_t>(latent_dim);
  parameters.o_stride_h = static_cast<std::uint32_t>(latent_dim);
  parameters.block_size = flashinfer::uint_fastdiv(block_size);
  parameters.num_heads = flashinfer::uint_fastdiv(heads);
  parameters.sm_scale = shape.scale;
  try {
    const cudaError_t launched =
        flashinfer::mla::BatchMLAPageAttentionHopper<flashinfer::MaskMode::kCausal, latent_dim,
                                                     rotated_dim>(
            parameters, static_cast<std::uint32_t>(plan->info().num_blks_x),
            static_cast<std::uint32_t>(plan->info().num_blks_y), stream);
    return cuda_done(launched, "the launch of latent attention");
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, "latent attention: {}", error.what());
  }
}

}  // namespace troupe
