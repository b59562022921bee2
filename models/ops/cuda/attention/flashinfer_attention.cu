#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include <flashinfer/attention/scheduler.cuh>

#include "models/ops/cuda/attention/flashinfer_attention.hpp"
#include "models/ops/cuda/attention/flashinfer_kernels.cuh"
#include "models/ops/cuda/cuda_error.hpp"

namespace troupe {
namespace {

using flash::Element;
using flash::Id;

constexpr std::size_t alignment = 256;
constexpr std::size_t sums_bytes = std::size_t{64} << 20;
constexpr std::size_t plan_bytes = std::size_t{4} << 20;

/// The number of positions before its own that a query sees, as FlashInfer counts a window; -1:
/// all.
std::int32_t positions_before(const AttentionShape& shape) {
  return static_cast<std::int32_t>(shape.window) - 1;
}

/// Of consecutive arrays in a plan's memory.
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

struct FlashAttention::Memory {
  std::byte* data = nullptr;
  ~Memory() { cudaFree(data); }
};

/// What a batch is planned as: the arrays of the batch, then FlashInfer's own.
class FlashAttention::Plan {
 public:
  static Result<std::unique_ptr<Plan>> create() {
    TROUPE_TRY(auto memory, PlanMemory::create(plan_bytes));
    return std::unique_ptr<Plan>(new Plan(std::move(memory)));
  }

  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch, std::byte* sums,
                    cudaStream_t stream);
  flash::Parameters parameters(const Tensor& q, const AttentionShape& shape,
                               const AttentionBatch& batch, const KvLayer& cache,
                               const Tensor& out) const;
  const flashinfer::PrefillPlanInfo& info() const { return info_; }

 private:
  explicit Plan(std::unique_ptr<PlanMemory> memory) : memory_(std::move(memory)) {}

  template <class T>
  T* device(std::size_t at) const {
    return reinterpret_cast<T*>(memory_->device() + at);
  }
  template <class T = Id>
  T* planned(std::int64_t offset) const {
    return device<T>(rest_ + static_cast<std::size_t>(offset));
  }
  /// Writes the batch's arrays to `host`; returns the sums of the pages that are in use.
  std::vector<Id> write_batch(const AttentionBatch& batch, std::byte* host);

  std::unique_ptr<PlanMemory> memory_;
  flashinfer::PrefillPlanInfo info_;
  std::size_t row_offsets_ = 0, page_offsets_ = 0, last_pages_ = 0, rest_ = 0;
};

std::vector<Id> FlashAttention::Plan::write_batch(const AttentionBatch& batch, std::byte* host) {
  const std::size_t sequences = batch.sequences.size();
  Layout layout;
  row_offsets_ = layout.take(sequences + 1);
  page_offsets_ = layout.take(sequences + 1);
  last_pages_ = layout.take(sequences);
  rest_ = layout.next();
  const auto array = [&](std::size_t at) { return reinterpret_cast<Id*>(host + at); };
  // The planner must cut a context as the kernel does, by its length, however long its table is.
  std::vector<Id> used_pages(sequences + 1, 0);
  for (std::size_t i = 0; i < sequences; ++i) {
    const SequenceSpan& span = batch.sequences[i];
    const bool is_last = i + 1 == sequences;
    const Id next_table =
        is_last ? static_cast<Id>(batch.block_tables[0]) : batch.sequences[i + 1].block_offset;
    array(row_offsets_)[i] = span.first_row;
    array(page_offsets_)[i] = span.block_offset;
    const std::int32_t positions = span.first_position + span.rows;
    used_pages[i + 1] = used_pages[i] + (positions + batch.block_size - 1) / batch.block_size;
    // A table may be longer than the positions so far, and behind the last one of a part of a pass
    // those of others follow: then this is below 1, and the length that FlashInfer makes of both is
    // right all the same.
    array(last_pages_)[i] = positions - (next_table - span.block_offset - 1) * batch.block_size;
    if (!is_last) continue;
    array(row_offsets_)[sequences] = span.first_row + span.rows;
    array(page_offsets_)[sequences] = next_table;
  }
  return used_pages;
}

Result<void> FlashAttention::Plan::make(const AttentionShape& shape, const AttentionBatch& batch,
                                        std::byte* sums, cudaStream_t stream) {
  TROUPE_TRY(std::byte* const host, memory_->next());
  std::vector<Id> used_pages = write_batch(batch, host);
  Id* const rows = reinterpret_cast<Id*>(host + row_offsets_);
  info_ = {};
  const auto head_dim = static_cast<std::uint32_t>(shape.head_dim);
  const cudaError_t planned = flashinfer::PrefillPlan<Id>(
      sums, sums_bytes, memory_->device() + rest_, host + rest_, plan_bytes - rest_, info_, rows,
      used_pages.data(), static_cast<std::uint32_t>(rows[batch.sequences.size()]),
      static_cast<std::uint32_t>(batch.sequences.size()), static_cast<std::uint32_t>(shape.heads),
      static_cast<std::uint32_t>(shape.kv_heads), head_dim, head_dim,
      static_cast<std::uint32_t>(batch.block_size), batch.graph_captured, sizeof(Element),
      positions_before(shape), -1, batch.graph_captured, 0, batch.graph_captured ? 1 : 0, stream);
  TROUPE_CHECK(cuda_done(planned, "the plan of attention"));
  // It has uploaded its own arrays, which lie behind those of the batch.
  return memory_->upload(rest_, stream);
}

flash::Parameters FlashAttention::Plan::parameters(const Tensor& q, const AttentionShape& shape,
                                                   const AttentionBatch& batch,
                                                   const KvLayer& cache, const Tensor& out) const {
  const flashinfer::paged_kv_t<Element, Id> pages(
      static_cast<std::uint32_t>(shape.kv_heads), static_cast<std::uint32_t>(batch.block_size),
      static_cast<std::uint32_t>(shape.head_dim),
      static_cast<std::uint32_t>(batch.sequences.size()), flashinfer::QKVLayout::kHND,
      static_cast<Element*>(cache.keys.data()), static_cast<Element*>(cache.values.data()),
      batch.block_tables.as<Id>(), device<Id>(page_offsets_), device<Id>(last_pages_));
  flash::Parameters parameters(
      static_cast<Element*>(q.data()), pages, nullptr, device<Id>(row_offsets_), nullptr, nullptr,
      static_cast<Element*>(out.data()), nullptr, nullptr, static_cast<std::uint32_t>(shape.heads),
      static_cast<Id>(shape.heads * shape.head_dim), static_cast<Id>(shape.head_dim),
      positions_before(shape), 0.0F, shape.scale, 1.0F, 1.0F);
  parameters.request_indices = planned(info_.request_indices_offset);
  parameters.qo_tile_indices = planned(info_.qo_tile_indices_offset);
  parameters.kv_tile_indices = planned(info_.kv_tile_indices_offset);
  parameters.o_indptr = planned(info_.o_indptr_offset);
  parameters.kv_chunk_size_ptr = planned(info_.kv_chunk_size_ptr_offset);
  parameters.max_total_num_rows = static_cast<std::uint32_t>(info_.total_num_rows);
  parameters.padded_batch_size = static_cast<std::uint32_t>(info_.padded_batch_size);
  if (info_.split_kv) parameters.merge_indptr = planned(info_.merge_indptr_offset);
  if (info_.enable_cuda_graph) {
    parameters.block_valid_mask = planned<bool>(info_.block_valid_mask_offset);
    parameters.total_num_rows = planned<std::uint32_t>(info_.total_num_rows_offset);
  }
  return parameters;
}

FlashAttention::~FlashAttention() = default;

Result<std::unique_ptr<FlashAttention>> FlashAttention::create() {
  std::unique_ptr<FlashAttention> attention(new FlashAttention());
  attention->sums_ = std::make_unique<Memory>();
  TROUPE_CHECK(cuda_done(cudaMalloc(reinterpret_cast<void**>(&attention->sums_->data), sums_bytes),
                         "memory for attention"));
  return Result<std::unique_ptr<FlashAttention>>(std::move(attention));
}

bool FlashAttention::supports(const AttentionShape& shape, DType stored, DType activation) {
  return activation == DType::bf16 && stored == DType::bf16 && shape.latent == 0 &&
         (shape.head_dim == 64 || shape.head_dim == 128);
}

Result<void> FlashAttention::plan(const AttentionShape& shape, const AttentionBatch& batch,
                                  cudaStream_t stream) {
  try {
    TROUPE_TRY(Plan* const plan, plans_.of(batch, stream));
    return plan->make(shape, batch, sums_->data, stream);
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, "plan of attention: {}", error.what());
  }
}

Result<void> FlashAttention::attend(const Tensor& q, const AttentionShape& shape,
                                    const AttentionBatch& batch, const KvLayer& cache,
                                    const Tensor& out, cudaStream_t stream) {
  const Plan* const plan = plans_.find(batch);
  if (plan == nullptr) return fail(ErrorCode::internal, "attention that was not planned");
  try {
    const flashinfer::PrefillPlanInfo& info = plan->info();
    const flash::Parameters parameters = plan->parameters(q, shape, batch, cache, out);
    auto* const sums =
        info.split_kv ? reinterpret_cast<Element*>(sums_->data + info.v_offset) : nullptr;
    auto* const scales =
        info.split_kv ? reinterpret_cast<float*>(sums_->data + info.s_offset) : nullptr;
    const cudaError_t launched =
        shape.head_dim == 64
            ? flash::launch<64>(info.cta_tile_q, parameters, sums, scales, stream)
            : flash::launch<128>(info.cta_tile_q, parameters, sums, scales, stream);
    return cuda_done(launched, "the launch of attention");
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, "attention: {}", error.what());
  }
}

}  // namespace troupe
