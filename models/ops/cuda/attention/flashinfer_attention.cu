#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include <flashinfer/attention/scheduler.cuh>

#include "models/ops/cuda/attention/flashinfer_attention.hpp"
#include "models/ops/cuda/attention/flashinfer_kernels.cuh"
#include "models/ops/cuda/attention/padded_heads.hpp"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/gpu_attention.hpp"

namespace troupe {
namespace {

using flash::Element;
using flash::Id;

constexpr std::size_t alignment = 256;
constexpr std::size_t sums_bytes = std::size_t{64} << 20;

/// The number of positions before its own that a query sees, as FlashInfer counts a window; -1:
/// all.
std::int32_t positions_before(const AttentionShape& shape) {
  return static_cast<std::int32_t>(shape.window) - 1;
}

/// The heads of the kernel that attention of such heads takes: the others' elements are zeros in
/// queries, so that keys may have anything there, and are left out of the results.
std::int64_t kernel_dim(std::int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}
bool is_padded(const AttentionShape& shape) { return kernel_dim(shape.head_dim) != shape.head_dim; }

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

/// What a batch is planned as: the arrays of the batch, then FlashInfer's own. For the kernel, a
/// sequence that is left to FlashInferHopper has no keys.
class FlashAttention::Plan : public BatchPlan {
 public:
  static constexpr std::size_t bytes = std::size_t{4} << 20;

  using BatchPlan::BatchPlan;
  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch, std::byte* sums,
                    cudaStream_t stream);
  /// For `q` and `out` of heads of kernel_dim().
  flash::Parameters parameters(Element* q, const AttentionShape& shape, const AttentionBatch& batch,
                               const KvLayer& cache, Element* out) const;
  const flashinfer::PrefillPlanInfo& info() const { return info_; }
  /// False if all sequences are left to FlashInferHopper: then nothing was planned.
  bool has_work() const { return has_work_; }

 private:
  template <class T>
  T* device(std::size_t at) const {
    return reinterpret_cast<T*>(memory_->device() + at);
  }
  template <class T = Id>
  T* planned(std::int64_t offset) const {
    return device<T>(rest_ + static_cast<std::size_t>(offset));
  }
  /// Writes the batch's arrays to `host`; returns the sums of the pages that are in use.
  std::vector<Id> write_batch(const AttentionShape& shape, const AttentionBatch& batch,
                              std::byte* host);

  bool has_work_ = false;
  flashinfer::PrefillPlanInfo info_;
  std::size_t row_offsets_ = 0, page_offsets_ = 0, last_pages_ = 0, rest_ = 0;
};

std::vector<Id> FlashAttention::Plan::write_batch(const AttentionShape& shape,
                                                  const AttentionBatch& batch, std::byte* host) {
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
    const bool is_left = FlashInferHopper::suits(shape, span);
    const std::int32_t positions = is_left ? 0 : span.first_position + span.rows;
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
  has_work_ = !std::ranges::all_of(batch.sequences, [&](const SequenceSpan& span) {
    return FlashInferHopper::suits(shape, span);
  });
  if (!has_work_) return {};
  TROUPE_TRY(std::byte* const host, memory_->next());
  std::vector<Id> used_pages = write_batch(shape, batch, host);
  Id* const rows = reinterpret_cast<Id*>(host + row_offsets_);
  info_ = {};
  const auto head_dim = static_cast<std::uint32_t>(kernel_dim(shape.head_dim));
  const cudaError_t planned = flashinfer::PrefillPlan<Id>(
      sums, sums_bytes, memory_->device() + rest_, host + rest_, memory_->bytes() - rest_, info_,
      rows, used_pages.data(), static_cast<std::uint32_t>(rows[batch.sequences.size()]),
      static_cast<std::uint32_t>(batch.sequences.size()), static_cast<std::uint32_t>(shape.heads),
      static_cast<std::uint32_t>(shape.kv_heads), head_dim, head_dim,
      static_cast<std::uint32_t>(batch.block_size), batch.graph_captured, sizeof(Element),
      positions_before(shape), -1, batch.graph_captured, 0, batch.graph_captured ? 1 : 0, stream);
  TROUPE_CHECK(cuda_done(planned, "the plan of attention"));
  // It has uploaded its own arrays, which lie behind those of the batch.
  return memory_->upload(rest_, stream);
}

flash::Parameters FlashAttention::Plan::parameters(Element* q, const AttentionShape& shape,
                                                   const AttentionBatch& batch,
                                                   const KvLayer& cache, Element* out) const {
  const std::int64_t dim = shape.head_dim, padded = kernel_dim(dim);
  const std::int64_t strides[] = {shape.kv_heads * batch.block_size * dim, batch.block_size * dim,
                                  dim};
  const flashinfer::paged_kv_t<Element, Id> pages(
      static_cast<std::uint32_t>(shape.kv_heads), static_cast<std::uint32_t>(batch.block_size),
      static_cast<std::uint32_t>(padded), static_cast<std::uint32_t>(batch.sequences.size()),
      flashinfer::QKVLayout::kHND, static_cast<Element*>(cache.keys.data()),
      static_cast<Element*>(cache.values.data()), strides, batch.block_tables.as<Id>(),
      device<Id>(page_offsets_), device<Id>(last_pages_));
  flash::Parameters parameters(q, pages, nullptr, device<Id>(row_offsets_), nullptr, nullptr, out,
                               nullptr, nullptr, static_cast<std::uint32_t>(shape.heads),
                               static_cast<Id>(shape.heads * padded), static_cast<Id>(padded),
                               positions_before(shape), shape.soft_cap, shape.scale, 1.0F, 1.0F);
  if (!shape.sinks.empty()) parameters.sinks = shape.sinks.as<float>();
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
  TROUPE_TRY(attention->sums_, DeviceBuffer::allocate(sums_bytes, "memory for attention"));
  if (hopper_kernels_run()) TROUPE_CHECK(attention->long_prompts_.reserve());
  return Result<std::unique_ptr<FlashAttention>>(std::move(attention));
}

bool FlashAttention::supports(const AttentionShape& shape, DType stored, DType activation) {
  return activation == DType::bf16 && stored == DType::bf16 && flashinfer_takes(shape);
}

std::int64_t FlashAttention::elements_behind(const AttentionShape& shape) {
  return shape.latent > 0 ? 0
                          : std::max<std::int64_t>(kernel_dim(shape.head_dim) - shape.head_dim, 0);
}

bool FlashAttention::supports_graph(const AttentionShape& shape) { return !is_padded(shape); }

Result<void> FlashAttention::reserve_padded(const AttentionShape& shape,
                                            const AttentionBatch& batch) {
  std::int64_t rows = 0;
  for (const SequenceSpan& span : batch.sequences) rows += span.rows;
  const auto bytes =
      static_cast<std::size_t>(rows * shape.heads * kernel_dim(shape.head_dim)) * sizeof(Element);
  if (padded_.bytes() >= bytes) return {};
  padded_ = {};  // waits for what uses it
  TROUPE_TRY(padded_, DeviceBuffer::allocate(bytes, "memory for attention"));
  return {};
}

Result<void> FlashAttention::plan(const AttentionShape& shape, const AttentionBatch& batch,
                                  cudaStream_t stream) {
  try {
    TROUPE_TRY(Plan* const plan, plans_.of(batch, stream));
    if (is_padded(shape)) TROUPE_CHECK(reserve_padded(shape, batch));
    return plan->make(shape, batch, sums_.data(), stream);
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, "plan of attention: {}", error.what());
  }
}

bool FlashAttention::has_plan(const AttentionBatch& batch) const {
  return plans_.made_for(batch).ok();
}

Result<void> FlashAttention::attend(const Tensor& q, const AttentionShape& shape,
                                    const AttentionBatch& batch, const KvLayer& cache,
                                    const Tensor& out, cudaStream_t stream) {
  TROUPE_TRY(const Plan* const plan, plans_.made_for(batch));
  if (plan->has_work()) {
    TROUPE_CHECK(attend_planned(*plan, q, shape, batch, cache, out, stream));
  }
  for (const SequenceSpan& span : batch.sequences) {
    if (!FlashInferHopper::suits(shape, span)) continue;
    TROUPE_CHECK(long_prompts_.attend(q, shape, batch, span, cache, out, stream));
  }
  return {};
}

Result<void> FlashAttention::attend_planned(const Plan& plan, const Tensor& q,
                                            const AttentionShape& shape,
                                            const AttentionBatch& batch, const KvLayer& cache,
                                            const Tensor& out, cudaStream_t stream) {
  try {
    const flashinfer::PrefillPlanInfo& info = plan.info();
    const std::int64_t padded = kernel_dim(shape.head_dim), heads = q[0] * shape.heads;
    auto* kernel_q = static_cast<Element*>(q.data());
    auto* kernel_out = static_cast<Element*>(out.data());
    if (is_padded(shape)) {
      // A tile's results take the place of its queries, which were read before.
      kernel_out = padded_.as<Element>();
      TROUPE_CHECK(cuda_done(
          resize_rows(kernel_q, heads, shape.head_dim, kernel_out, padded, stream), "queries"));
      kernel_q = kernel_out;
    }
    const flash::Parameters parameters = plan.parameters(kernel_q, shape, batch, cache, kernel_out);
    auto* const sums =
        info.split_kv ? reinterpret_cast<Element*>(sums_.data() + info.v_offset) : nullptr;
    auto* const scales =
        info.split_kv ? reinterpret_cast<float*>(sums_.data() + info.s_offset) : nullptr;
    const auto launch = padded == 64    ? flash::launch<64>
                        : padded == 128 ? flash::launch<128>
                                        : flash::launch<256>;
    TROUPE_CHECK(
        cuda_done(launch(info.cta_tile_q, shape.soft_cap > 0.0F, parameters, sums, scales, stream),
                  "the launch of attention"));
    if (!is_padded(shape)) return {};
    return cuda_done(resize_rows(kernel_out, heads, padded, static_cast<Element*>(out.data()),
                                 shape.head_dim, stream),
                     "results of attention");
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, "attention: {}", error.what());
  }
}

}  // namespace troupe
