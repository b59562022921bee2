#include <exception>
#include <utility>
#include <vector>

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>

#include "models/ops/cuda/flash_attention.hpp"

namespace troupe {
namespace {

using Element = __nv_bfloat16;
using Id = std::int32_t;
using Parameters = flashinfer::BatchPrefillPagedParams<Element, Element, Element, Id>;
/// No custom mask, window, soft cap or ALiBi.
using Variant = flashinfer::DefaultAttention<false, false, false, false>;

constexpr std::size_t alignment = 256;

template <std::uint32_t tile, std::uint32_t head_dim>
cudaError_t launch(const Parameters& parameters, Element* sums, float* scales,
                   cudaStream_t stream) {
  return flashinfer::BatchPrefillWithPagedKVCacheDispatched<
      true, tile, head_dim, head_dim, flashinfer::PosEncodingMode::kNone, false,
      flashinfer::MaskMode::kCausal, Variant>(parameters, sums, scales, false, stream);
}

template <std::uint32_t head_dim>
cudaError_t launch_tile(std::int64_t tile, const Parameters& parameters, Element* sums,
                        float* scales, cudaStream_t stream) {
  switch (tile) {
    case 16:
      return launch<16, head_dim>(parameters, sums, scales, stream);
    case 64:
      return launch<64, head_dim>(parameters, sums, scales, stream);
    case 128:
      return launch<128, head_dim>(parameters, sums, scales, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

/// Of consecutive arrays in the plan's memory.
class Layout {
 public:
  std::size_t take(std::size_t count) {
    const std::size_t at = next_;
    next_ += (count * sizeof(Id) + alignment - 1) / alignment * alignment;
    return at;
  }
  std::size_t next() const { return next_; }

 private:
  std::size_t next_ = 0;
};

}  // namespace

/// What a pass is planned as. The memory begins with the arrays of the batch; FlashInfer's follow.
struct FlashAttention::Plan {
  std::uint64_t pass = 0;
  const void* tables = nullptr;  ///< of the group
  AttentionShape shape;
  std::int32_t block_size = 0;
  flashinfer::PrefillPlanInfo info;
  std::size_t row_offsets = 0, page_offsets = 0, last_pages = 0, rest = 0;

  bool is_of(const AttentionShape& shape, const AttentionBatch& batch) const {
    return pass != 0 && pass == batch.pass && tables == batch.block_tables.data() &&
           heads_alike(shape) && block_size == batch.block_size;
  }
  bool heads_alike(const AttentionShape& other) const {
    return shape.heads == other.heads && shape.kv_heads == other.kv_heads &&
           shape.head_dim == other.head_dim;
  }
};

FlashAttention::FlashAttention(DeviceTensor work, DeviceTensor plan)
    : work_(std::move(work)), plan_memory_(std::move(plan)), plan_(std::make_unique<Plan>()) {}

FlashAttention::~FlashAttention() {
  if (copied_ != nullptr) cudaEventDestroy(copied_);
  if (host_ != nullptr) cudaFreeHost(host_);
}

Result<std::unique_ptr<FlashAttention>> FlashAttention::create(DeviceTensor work,
                                                               DeviceTensor plan) {
  std::unique_ptr<FlashAttention> attention(new FlashAttention(std::move(work), std::move(plan)));
  void* host = nullptr;
  if (const cudaError_t error = cudaMallocHost(&host, plan_bytes); error != cudaSuccess) {
    return fail(ErrorCode::resource_exhausted, "no page-locked memory of {} bytes: {}", plan_bytes,
                cudaGetErrorString(error));
  }
  attention->host_ = static_cast<std::byte*>(host);
  if (const cudaError_t error =
          cudaEventCreateWithFlags(&attention->copied_, cudaEventDisableTiming);
      error != cudaSuccess) {
    return fail(ErrorCode::internal, "cudaEventCreate failed: {}", cudaGetErrorString(error));
  }
  return Result<std::unique_ptr<FlashAttention>>(std::move(attention));
}

bool FlashAttention::supports(const AttentionShape& shape, const KvLayer& cache, DType activation) {
  return activation == DType::bf16 && cache.keys.dtype() == DType::bf16 && shape.window == 0 &&
         shape.latent == 0 && (shape.head_dim == 64 || shape.head_dim == 128);
}

std::byte* FlashAttention::plan_memory() const {
  return static_cast<std::byte*>(plan_memory_->data());
}

Result<void> FlashAttention::make_plan(const AttentionShape& shape, const AttentionBatch& batch,
                                       cudaStream_t stream) {
  const std::size_t sequences = batch.sequences.size();
  *plan_ = Plan();
  Layout layout;
  plan_->row_offsets = layout.take(sequences + 1);
  plan_->page_offsets = layout.take(sequences + 1);
  plan_->last_pages = layout.take(sequences);
  plan_->rest = layout.next();
  cudaEventSynchronize(copied_);  // the last plan has left the host's memory
  // The planner must cut a context as the kernel does, by its length, however long its table is.
  std::vector<Id> used_pages(sequences + 1, 0);
  const auto host = [&](std::size_t at) { return reinterpret_cast<Id*>(host_ + at); };
  Id* rows = host(plan_->row_offsets);
  Id* pages = host(plan_->page_offsets);
  for (std::size_t i = 0; i < sequences; ++i) {
    const SequenceSpan& span = batch.sequences[i];
    const bool is_last = i + 1 == sequences;
    const Id next_table =
        is_last ? static_cast<Id>(batch.block_tables[0]) : batch.sequences[i + 1].block_offset;
    rows[i] = span.first_row;
    pages[i] = span.block_offset;
    const std::int32_t positions = span.first_position + span.rows;
    used_pages[i + 1] = used_pages[i] + (positions + batch.block_size - 1) / batch.block_size;
    // A table may be longer than the positions so far: then this is below 1, and the length that
    // FlashInfer makes of both is right all the same.
    host(plan_->last_pages)[i] =
        positions - (next_table - span.block_offset - 1) * batch.block_size;
    if (!is_last) continue;
    rows[sequences] = span.first_row + span.rows;
    pages[sequences] = next_table;
  }
  const cudaError_t planned = flashinfer::PrefillPlan<Id>(
      work_->data(), work_->bytes(), plan_memory() + plan_->rest, host_ + plan_->rest,
      plan_memory_->bytes() - plan_->rest, plan_->info, rows, used_pages.data(),
      static_cast<std::uint32_t>(rows[sequences]), static_cast<std::uint32_t>(sequences),
      static_cast<std::uint32_t>(shape.heads), static_cast<std::uint32_t>(shape.kv_heads),
      static_cast<std::uint32_t>(shape.head_dim), static_cast<std::uint32_t>(shape.head_dim),
      static_cast<std::uint32_t>(batch.block_size), false, sizeof(Element), -1, -1, false, 0, 0,
      stream);
  if (planned != cudaSuccess) {
    return fail(ErrorCode::internal, "attention cannot be planned: {}",
                cudaGetErrorString(planned));
  }
  const cudaError_t copied =
      cudaMemcpyAsync(plan_memory(), host_, plan_->rest, cudaMemcpyHostToDevice, stream);
  cudaEventRecord(copied_, stream);
  if (copied != cudaSuccess) {
    return fail(ErrorCode::internal, "upload of a plan: {}", cudaGetErrorString(copied));
  }
  plan_->pass = batch.pass;
  plan_->tables = batch.block_tables.data();
  plan_->shape = shape;
  plan_->block_size = batch.block_size;
  return {};
}

Result<void> FlashAttention::attend(const Tensor& q, const AttentionShape& shape,
                                    const AttentionBatch& batch, const KvLayer& cache,
                                    const Tensor& out, cudaStream_t stream) {
  try {
    if (!plan_->is_of(shape, batch)) TROUPE_CHECK(make_plan(shape, batch, stream));
    const flashinfer::PrefillPlanInfo& info = plan_->info;
    const auto ids = [&](std::size_t at) { return reinterpret_cast<Id*>(plan_memory() + at); };
    const auto planned = [&](std::int64_t offset) {
      return ids(plan_->rest + static_cast<std::size_t>(offset));
    };
    const flashinfer::paged_kv_t<Element, Id> pages(
        static_cast<std::uint32_t>(shape.kv_heads), static_cast<std::uint32_t>(batch.block_size),
        static_cast<std::uint32_t>(shape.head_dim),
        static_cast<std::uint32_t>(batch.sequences.size()), flashinfer::QKVLayout::kHND,
        static_cast<Element*>(cache.keys.data()), static_cast<Element*>(cache.values.data()),
        batch.block_tables.as<Id>(), ids(plan_->page_offsets), ids(plan_->last_pages));
    Parameters parameters(static_cast<Element*>(q.data()), pages, nullptr, ids(plan_->row_offsets),
                          nullptr, nullptr, static_cast<Element*>(out.data()), nullptr, nullptr,
                          static_cast<std::uint32_t>(shape.heads),
                          static_cast<Id>(shape.heads * shape.head_dim),
                          static_cast<Id>(shape.head_dim), -1, 0.0F, shape.scale, 1.0F, 1.0F);
    parameters.request_indices = planned(info.request_indices_offset);
    parameters.qo_tile_indices = planned(info.qo_tile_indices_offset);
    parameters.kv_tile_indices = planned(info.kv_tile_indices_offset);
    parameters.o_indptr = planned(info.o_indptr_offset);
    parameters.kv_chunk_size_ptr = planned(info.kv_chunk_size_ptr_offset);
    parameters.max_total_num_rows = static_cast<std::uint32_t>(info.total_num_rows);
    parameters.padded_batch_size = static_cast<std::uint32_t>(info.padded_batch_size);
    Element* sums = nullptr;
    float* scales = nullptr;
    if (info.split_kv) {
      auto* const work = static_cast<std::byte*>(work_->data());
      parameters.merge_indptr = planned(info.merge_indptr_offset);
      sums = reinterpret_cast<Element*>(work + info.v_offset);
      scales = reinterpret_cast<float*>(work + info.s_offset);
    }
    const cudaError_t error =
        shape.head_dim == 64 ? launch_tile<64>(info.cta_tile_q, parameters, sums, scales, stream)
                             : launch_tile<128>(info.cta_tile_q, parameters, sums, scales, stream);
    if (error == cudaSuccess) return {};
    return fail(ErrorCode::internal, "attention: {}", cudaGetErrorString(error));
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, "attention: {}", error.what());
  }
}

}  // namespace troupe
