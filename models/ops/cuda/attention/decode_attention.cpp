#include "models/ops/cuda/attention/decode_attention.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "models/ops/cuda/attention/decode_kernel.hpp"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/gpu_attention.hpp"

namespace troupe {
namespace {

/// Of the sums of one block's part: columns times elements of a head.
constexpr std::int64_t max_part_sums = 2048;
static_assert(decode_columns(128, max_decode_columns) * 128 <= max_part_sums &&
              decode_columns(256, max_decode_columns) * 256 <= max_part_sums);
/// A context of up to `whole_pages` is not cut, a longer one not finer than `min_pages`: putting
/// parts together would cost more.
constexpr std::int64_t whole_pages = 16, min_pages = 8;

/// Blocks of a row or of a part of it: those of a KV head share its query heads.
std::int64_t row_blocks_of(const AttentionShape& shape) {
  if (shape.latent > 0) return 1;
  const std::int64_t group = shape.heads / shape.kv_heads;
  const int columns = decode_columns(static_cast<int>(shape.head_dim), group);
  return shape.kv_heads * ((group + columns - 1) / columns);
}

}  // namespace

/// Memory for the parts of contexts that are cut.
struct DecodeAttention::PartMemory {
  float* sums = nullptr;
  float2* scales = nullptr;
  unsigned* finished = nullptr;

  ~PartMemory() {
    cudaFree(sums);
    cudaFree(scales);
    cudaFree(finished);
  }
  Result<void> allocate(std::int64_t slots) {
    const auto bytes = [&](std::int64_t each) { return static_cast<std::size_t>(slots * each); };
    const auto take = [](auto** memory, std::size_t size) {
      return cuda_done(cudaMalloc(reinterpret_cast<void**>(memory), size), "memory for attention");
    };
    TROUPE_CHECK(take(&sums, bytes(max_part_sums * std::int64_t{sizeof(float)})));
    TROUPE_CHECK(take(&scales, bytes(max_decode_columns * std::int64_t{sizeof(float2)})));
    TROUPE_CHECK(take(&finished, bytes(sizeof(unsigned))));
    TROUPE_CHECK(
        cuda_done(cudaMemset(finished, 0, bytes(sizeof(unsigned))), "memory for attention"));
    // Streams that do not wait for the default one use it.
    return cuda_done(cudaStreamSynchronize(nullptr), "memory for attention");
  }
};

/// The parts of a batch, longest contexts first. As many entries for every batch of as many rows.
class DecodeAttention::Plan {
 public:
  static Result<std::unique_ptr<Plan>> create() {
    constexpr std::size_t bytes = std::size_t{4} << 20;  // of 131,072 parts
    TROUPE_TRY(auto memory, PlanMemory::create(bytes));
    return std::unique_ptr<Plan>(new Plan(std::move(memory)));
  }

  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch, int multiprocessors,
                    cudaStream_t stream);
  int blocks() const { return blocks_; }  ///< on a multiprocessor
  std::int64_t entries() const { return entries_; }
  const DecodePart* parts() const { return reinterpret_cast<const DecodePart*>(memory_->device()); }

 private:
  explicit Plan(std::unique_ptr<PlanMemory> memory) : memory_(std::move(memory)) {}

  std::unique_ptr<PlanMemory> memory_;
  int blocks_ = 1;
  std::int64_t entries_ = 0;
};

Result<void> DecodeAttention::Plan::make(const AttentionShape& shape, const AttentionBatch& batch,
                                         int multiprocessors, cudaStream_t stream) {
  const auto rows = static_cast<std::int64_t>(batch.sequences.size());
  const std::int64_t row_blocks = row_blocks_of(shape);
  blocks_ = decode_blocks(rows * row_blocks, multiprocessors);
  const std::int64_t rows_at_once =
      std::max<std::int64_t>(std::int64_t{multiprocessors} * blocks_ / row_blocks, 1);
  const bool whole_rows = shape.latent > 0;  // its kernel shares them out itself
  const std::int64_t entries = whole_rows ? rows : rows + rows_at_once;
  const std::size_t bytes = static_cast<std::size_t>(entries) * sizeof(DecodePart);
  if (bytes > memory_->bytes()) {
    return fail(ErrorCode::resource_exhausted, "attention of {} rows wants a plan of {} bytes",
                rows, bytes);
  }
  entries_ = entries;
  // The first position that a row sees.
  const auto first_of = [&](std::int32_t row) -> std::int32_t {
    const std::int32_t own = batch.sequences[static_cast<std::size_t>(row)].first_position;
    const std::int64_t before =
        shape.window == 0 ? own : std::min<std::int64_t>(own, shape.window - 1);
    return own - static_cast<std::int32_t>(before);
  };
  const auto pages_of = [&](std::int32_t row) -> std::int64_t {
    return batch.sequences[static_cast<std::size_t>(row)].first_position / decode_page -
           first_of(row) / decode_page + 1;
  };
  std::vector<std::int32_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), pages_of);
  std::int64_t all_pages = 0;
  for (const std::int32_t row : order) all_pages += pages_of(row);
  // No part is longer than what each block would get if all got the same.
  std::int64_t longest =
      whole_rows ? all_pages : std::max((all_pages + rows_at_once - 1) / rows_at_once, min_pages);
  const auto parts_of = [&](std::int32_t row) -> std::int64_t {
    if (pages_of(row) <= whole_pages) return 1;
    return std::min<std::int64_t>((pages_of(row) + longest - 1) / longest, max_decode_parts);
  };
  const auto all_parts = [&] {
    std::int64_t parts = 0;
    for (const std::int32_t row : order) parts += parts_of(row);
    return parts;
  };
  // Where all blocks can run at once, none waits.
  while (all_parts() > std::max(rows, rows_at_once) && rows <= rows_at_once) {
    longest += std::max<std::int64_t>(longest / 32, 1);
  }
  TROUPE_TRY(std::byte* const host, memory_->next());
  const std::span<DecodePart> parts(reinterpret_cast<DecodePart*>(host),
                                    static_cast<std::size_t>(entries_));
  std::size_t next = 0;
  std::int32_t slot = 0;
  for (const std::int32_t row : order) {
    const SequenceSpan& span = batch.sequences[static_cast<std::size_t>(row)];
    const std::int32_t positions = span.first_position + 1;
    const std::int64_t about = parts_of(row);
    const auto pages = static_cast<std::int32_t>((pages_of(row) + about - 1) / about);
    const auto count = static_cast<std::int32_t>((pages_of(row) + pages - 1) / pages);
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t first_page = first_of(row) / decode_page + i * pages;
      const std::int32_t left = positions - first_page * decode_page;
      parts[next++] = {.row = row,
                       .table = span.block_offset,
                       .first_page = first_page,
                       .positions = std::min(left, pages * decode_page),
                       .index = i,
                       .parts = count,
                       .slot = slot,
                       .hidden = i == 0 ? first_of(row) % decode_page : 0};
    }
    if (count > 1) slot += count;
  }
  std::fill(parts.begin() + static_cast<std::ptrdiff_t>(next), parts.end(), DecodePart{});
  return memory_->upload(bytes, stream);
}

Result<std::unique_ptr<DecodeAttention>> DecodeAttention::create() {
  std::unique_ptr<DecodeAttention> attention(new DecodeAttention());
  int device = 0;
  TROUPE_CHECK(cuda_done(cudaGetDevice(&device), "a look at the device"));
  TROUPE_CHECK(cuda_done(
      cudaDeviceGetAttribute(&attention->multiprocessors_, cudaDevAttrMultiProcessorCount, device),
      "a look at the device"));
  attention->parts_ = std::make_unique<PartMemory>();
  // Rows that are cut have at most as many parts as there are blocks at once, and one more each,
  // which is no more than that again.
  TROUPE_CHECK(attention->parts_->allocate(2 * max_decode_blocks * attention->multiprocessors_));
  return Result<std::unique_ptr<DecodeAttention>>(std::move(attention));
}

DecodeAttention::~DecodeAttention() = default;

bool DecodeAttention::supports(const AttentionShape& shape, DType stored, DType activation) {
  return hopper_kernels_run() && activation == DType::bf16 && stored == DType::bf16 &&
         (decode_kernel_takes(shape) || latent_decode_kernel_takes(shape));
}

bool DecodeAttention::suits(const AttentionBatch& batch) {
  return batch.block_size % decode_page == 0 &&
         std::ranges::all_of(batch.sequences, [](const SequenceSpan& s) { return s.rows == 1; });
}

Result<void> DecodeAttention::plan(const AttentionShape& shape, const AttentionBatch& batch,
                                   cudaStream_t stream) {
  TROUPE_TRY(Plan* const plan, plans_.of(batch, stream));
  return plan->make(shape, batch, multiprocessors_, stream);
}

Result<void> DecodeAttention::attend(const Tensor& q, const AttentionShape& shape,
                                     const AttentionBatch& batch, const KvLayer& cache,
                                     const Tensor& out, cudaStream_t stream) {
  const Plan* const plan = plans_.find(batch);
  if (plan == nullptr) return fail(ErrorCode::internal, "attention that was not planned");
  const bool is_capped = shape.soft_cap > 0.0F;
  const DecodePass pass{.q = static_cast<const DecodePass::Element*>(q.data()),
                        .keys = static_cast<const DecodePass::Element*>(cache.keys.data()),
                        .values = static_cast<const DecodePass::Element*>(cache.values.data()),
                        .out = static_cast<DecodePass::Element*>(out.data()),
                        .parts = plan->parts(),
                        .tables = batch.block_tables.as<std::int32_t>(),
                        .sinks = shape.sinks.empty() ? nullptr : shape.sinks.as<float>(),
                        .sums = parts_->sums,
                        .scales = parts_->scales,
                        .finished = parts_->finished,
                        .entries = static_cast<int>(plan->entries()),
                        .kv_heads = static_cast<int>(shape.kv_heads),
                        .row_blocks = static_cast<int>(row_blocks_of(shape)),
                        .group = static_cast<int>(shape.heads / shape.kv_heads),
                        .pages_per_block = batch.block_size / decode_page,
                        .scale = shape.scale * log2_e * (is_capped ? 2.0F / shape.soft_cap : 1.0F),
                        .soft_cap = shape.soft_cap * log2_e};
  const cudaError_t launched =
      shape.latent > 0
          ? attend_latent_rows(pass, cache.keys.elements() / latent_key_dim / decode_page,
                               latent_blocks(plan->entries(), multiprocessors_), stream)
          : launch_decode_attention(pass, plan->blocks(), static_cast<int>(shape.head_dim), stream);
  return cuda_done(launched, "the launch of attention");
}

}  // namespace troupe
