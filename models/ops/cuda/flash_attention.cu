#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <flashinfer/attention/scheduler.cuh>

#include "models/ops/cuda/flash_attention.hpp"
#include "models/ops/cuda/flash_kernels.cuh"

namespace troupe {
namespace {

using flash::Element;
using flash::Id;

constexpr std::size_t alignment = 256;
constexpr std::size_t sums_bytes = std::size_t{64} << 20;
constexpr std::size_t plan_bytes = std::size_t{4} << 20;
/// Of tables that came and went: more than a pass and a draft model's have.
constexpr std::size_t most_plans = 16;
/// Query heads of a KV head that a block of the kernel's smallest tile takes at once.
constexpr std::int64_t decode_tile = 16;
/// Of the blocks, a multiprocessor holds two. From `enough_blocks` on (sequences times KV heads)
/// contexts are not cut into parts: putting them together again costs more than the balance gains.
/// Where they are, there are `blocks_of_parts` more blocks than that.
constexpr std::int64_t enough_blocks = 2 * 132;
constexpr std::int64_t blocks_of_parts = 2 * 132;
/// Positions of a part are a multiple of it: what a block loads at once.
constexpr std::int64_t least_part = 192;

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

Result<void> check(cudaError_t error, const char* operation) {
  if (error == cudaSuccess) return {};
  return fail(
      error == cudaErrorMemoryAllocation ? ErrorCode::resource_exhausted : ErrorCode::internal,
      "{} for attention failed: {}", operation, cudaGetErrorString(error));
}

}  // namespace

struct FlashAttention::Memory {
  std::byte* data = nullptr;
  ~Memory() { cudaFree(data); }
};

/// What a batch is planned as: the arrays of the batch, then FlashInfer's own. The host has them
/// twice, so that a plan can be made while the one before it is still being copied.
class FlashAttention::Plan {
 public:
  static Result<std::unique_ptr<Plan>> create();
  ~Plan();

  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch, std::byte* sums,
                    cudaStream_t stream);
  flash::Parameters parameters(const Tensor& q, const AttentionShape& shape,
                               const AttentionBatch& batch, const KvLayer& cache,
                               const Tensor& out) const;
  const flashinfer::PrefillPlanInfo& info() const { return info_; }

 private:
  struct Copy {
    std::byte* host = nullptr;  ///< page-locked
    cudaEvent_t uploaded = nullptr;
  };

  template <class T>
  T* device(std::size_t at) const {
    return reinterpret_cast<T*>(memory_.data + at);
  }
  template <class T = Id>
  T* planned(std::int64_t offset) const {
    return device<T>(rest_ + static_cast<std::size_t>(offset));
  }
  /// Plans one row of each sequence, in a layout that every batch of as many sequences has. Where
  /// sequences are few their contexts are cut into parts of equal length, as short as the layout's
  /// number of parts allows. Writes to `host`, returns the bytes.
  std::size_t plan_decode(const AttentionShape& shape, std::int32_t block_size,
                          std::span<const Id> pages_before, std::byte* host);
  /// Writes the batch's arrays to `host`; returns the sums of the pages that are in use.
  std::vector<Id> write_batch(const AttentionBatch& batch, std::byte* host);

  Memory memory_;
  std::array<Copy, 2> copies_;
  std::size_t turn_ = 0;
  flashinfer::PrefillPlanInfo info_;
  std::size_t sums_needed_ = 0;  ///< of what plan_decode planned
  std::size_t row_offsets_ = 0, page_offsets_ = 0, last_pages_ = 0, rest_ = 0;
};

FlashAttention::Plan::~Plan() {
  for (const Copy& copy : copies_) {
    if (copy.uploaded != nullptr) cudaEventDestroy(copy.uploaded);
    if (copy.host != nullptr) cudaFreeHost(copy.host);
  }
}

Result<std::unique_ptr<FlashAttention::Plan>> FlashAttention::Plan::create() {
  auto plan = std::make_unique<Plan>();
  TROUPE_CHECK(check(cudaMalloc(reinterpret_cast<void**>(&plan->memory_.data), plan_bytes),
                     "memory of a plan"));
  for (Copy& copy : plan->copies_) {
    TROUPE_CHECK(check(cudaMallocHost(reinterpret_cast<void**>(&copy.host), plan_bytes),
                       "page-locked memory"));
    TROUPE_CHECK(check(cudaEventCreateWithFlags(&copy.uploaded, cudaEventDisableTiming), "event"));
  }
  return Result<std::unique_ptr<Plan>>(std::move(plan));
}

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
    // A table may be longer than the positions so far: then this is below 1, and the length that
    // FlashInfer makes of both is right all the same.
    array(last_pages_)[i] = positions - (next_table - span.block_offset - 1) * batch.block_size;
    if (!is_last) continue;
    array(row_offsets_)[sequences] = span.first_row + span.rows;
    array(page_offsets_)[sequences] = next_table;
  }
  return used_pages;
}

std::size_t FlashAttention::Plan::plan_decode(const AttentionShape& shape, std::int32_t block_size,
                                              std::span<const Id> pages_before, std::byte* host) {
  const auto rows = static_cast<std::int64_t>(pages_before.size()) - 1;
  info_.split_kv = rows * shape.kv_heads < enough_blocks;
  const std::int64_t blocks =
      info_.split_kv ? rows + (blocks_of_parts + shape.kv_heads - 1) / shape.kv_heads : rows;
  const auto pages_of = [&](std::int64_t row) -> std::int64_t {
    const auto i = static_cast<std::size_t>(row);
    return pages_before[i + 1] - pages_before[i];
  };
  const std::int64_t tile = std::max<std::int64_t>(least_part / block_size, 1);  // pages
  std::int64_t chunk = tile;
  const auto parts_of = [&](std::int64_t row) -> std::int64_t {
    return info_.split_kv ? std::max<std::int64_t>((pages_of(row) + chunk - 1) / chunk, 1) : 1;
  };
  const auto all_parts = [&] {
    std::int64_t parts = 0;
    for (std::int64_t row = 0; row < rows; ++row) parts += parts_of(row);
    return parts;
  };
  while (all_parts() > blocks) chunk += tile;
  // The longest first, so that the last to end are short.
  std::vector<Id> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  if (!info_.split_kv) {
    std::ranges::stable_sort(order, std::greater<>(), pages_of);
  }

  Layout layout;
  const auto take = [&](std::int64_t& offset, std::int64_t count) {
    offset = static_cast<std::int64_t>(layout.take(static_cast<std::size_t>(count)));
    return reinterpret_cast<Id*>(host + offset);
  };
  Id* const request = take(info_.request_indices_offset, blocks);
  Id* const tiles = take(info_.qo_tile_indices_offset, blocks);
  Id* const part = take(info_.kv_tile_indices_offset, blocks);
  Id* const parts_before = take(info_.o_indptr_offset, rows + 1);
  *take(info_.kv_chunk_size_ptr_offset, 1) = static_cast<Id>(chunk * block_size);
  *take(info_.total_num_rows_offset, 1) = static_cast<Id>(rows);
  auto* const valid =
      reinterpret_cast<bool*>(take(info_.block_valid_mask_offset, (blocks + 3) / 4));
  std::fill_n(tiles, blocks, 0);
  std::int64_t next = 0;
  for (const Id row : order) {
    for (std::int64_t i = 0; i < parts_of(row); ++i, ++next) {
      request[next] = row;
      part[next] = static_cast<Id>(i);
    }
  }
  parts_before[0] = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    parts_before[row + 1] = parts_before[row] + static_cast<Id>(parts_of(row));
  }
  for (std::int64_t i = 0; i < blocks; ++i) valid[i] = i < next;
  info_.merge_indptr_offset = info_.o_indptr_offset;  // one row a sequence
  info_.enable_cuda_graph = true;
  info_.padded_batch_size = blocks;
  info_.total_num_rows = rows;
  info_.cta_tile_q = decode_tile;
  info_.v_offset = 0;
  info_.s_offset = blocks * shape.heads * shape.head_dim * std::int64_t{sizeof(Element)};
  sums_needed_ = static_cast<std::size_t>(info_.s_offset + blocks * shape.heads * 4);
  return layout.next();
}

Result<void> FlashAttention::Plan::make(const AttentionShape& shape, const AttentionBatch& batch,
                                        std::byte* sums, cudaStream_t stream) {
  Copy& copy = copies_[turn_++ % copies_.size()];
  TROUPE_CHECK(check(cudaEventSynchronize(copy.uploaded), "upload of a plan"));
  std::vector<Id> used_pages = write_batch(batch, copy.host);
  Id* const rows = reinterpret_cast<Id*>(copy.host + row_offsets_);
  info_ = {};
  std::size_t bytes = rest_;
  if (batch.recorded && shape.heads / shape.kv_heads <= decode_tile) {
    bytes += plan_decode(shape, batch.block_size, used_pages, copy.host + rest_);
    if (info_.split_kv && sums_needed_ > sums_bytes) {
      return fail(ErrorCode::resource_exhausted, "attention of {} rows wants {} bytes for parts",
                  batch.sequences.size(), sums_needed_);
    }
  } else {
    const auto head_dim = static_cast<std::uint32_t>(shape.head_dim);
    const cudaError_t planned = flashinfer::PrefillPlan<Id>(
        sums, sums_bytes, memory_.data + rest_, copy.host + rest_, plan_bytes - rest_, info_, rows,
        used_pages.data(), static_cast<std::uint32_t>(rows[batch.sequences.size()]),
        static_cast<std::uint32_t>(batch.sequences.size()), static_cast<std::uint32_t>(shape.heads),
        static_cast<std::uint32_t>(shape.kv_heads), head_dim, head_dim,
        static_cast<std::uint32_t>(batch.block_size), batch.recorded, sizeof(Element), -1, -1,
        batch.recorded, 0, batch.recorded ? 1 : 0, stream);
    TROUPE_CHECK(check(planned, "plan"));
  }
  TROUPE_CHECK(check(
      cudaMemcpyAsync(memory_.data, copy.host, bytes, cudaMemcpyHostToDevice, stream), "upload"));
  return check(cudaEventRecord(copy.uploaded, stream), "event");
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
      static_cast<Id>(shape.heads * shape.head_dim), static_cast<Id>(shape.head_dim), -1, 0.0F,
      shape.scale, 1.0F, 1.0F);
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
  TROUPE_CHECK(
      check(cudaMalloc(reinterpret_cast<void**>(&attention->sums_->data), sums_bytes), "memory"));
  return Result<std::unique_ptr<FlashAttention>>(std::move(attention));
}

bool FlashAttention::supports(const AttentionShape& shape, DType stored, DType activation) {
  return activation == DType::bf16 && stored == DType::bf16 && shape.window == 0 &&
         shape.latent == 0 && (shape.head_dim == 64 || shape.head_dim == 128);
}

Result<void> FlashAttention::plan(const AttentionShape& shape, const AttentionBatch& batch,
                                  cudaStream_t stream) {
  try {
    if (plans_.size() >= most_plans && !plans_.contains(batch.block_tables.data())) {
      TROUPE_CHECK(check(cudaStreamSynchronize(stream), "wait"));
      plans_.clear();
    }
    auto& plan = plans_[batch.block_tables.data()];
    if (plan == nullptr) {
      TROUPE_TRY(plan, Plan::create());
    }
    return plan->make(shape, batch, sums_->data, stream);
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, "plan of attention: {}", error.what());
  }
}

Result<void> FlashAttention::attend(const Tensor& q, const AttentionShape& shape,
                                    const AttentionBatch& batch, const KvLayer& cache,
                                    const Tensor& out, cudaStream_t stream) {
  const auto found = plans_.find(batch.block_tables.data());
  if (found == plans_.end()) return fail(ErrorCode::internal, "attention that was not planned");
  try {
    const Plan& plan = *found->second;
    const flashinfer::PrefillPlanInfo& info = plan.info();
    const flash::Parameters parameters = plan.parameters(q, shape, batch, cache, out);
    auto* const sums =
        info.split_kv ? reinterpret_cast<Element*>(sums_->data + info.v_offset) : nullptr;
    auto* const scales =
        info.split_kv ? reinterpret_cast<float*>(sums_->data + info.s_offset) : nullptr;
    const cudaError_t launched =
        shape.head_dim == 64
            ? flash::launch<64>(info.cta_tile_q, parameters, sums, scales, stream)
            : flash::launch<128>(info.cta_tile_q, parameters, sums, scales, stream);
    return check(launched, "launch");
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, "attention: {}", error.what());
  }
}

}  // namespace troupe
