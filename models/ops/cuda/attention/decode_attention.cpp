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
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace {

/// Of the sums of one block's part: columns times elements of a head.
constexpr std::int64_t max_part_sums = 2048;
static_assert(decode_columns(128, max_decode_columns) * 128 <= max_part_sums &&
              decode_columns(256, max_decode_columns) * 256 <= max_part_sums);
/// A context of up to `whole_pages` is not cut, a longer one not finer than `min_pages`: putting
/// parts together would cost more.
constexpr std::int64_t whole_pages = 16, min_pages = 8;

std::int64_t blocks_of_row(const AttentionShape& shape) {
  if (shape.latent > 0) return 1;
  const std::int64_t group = shape.heads / shape.kv_heads;
  return row_blocks_of(shape, decode_columns(static_cast<int>(shape.head_dim), group));
}

}  // namespace

/// The parts of a batch, longest contexts first. As many entries for every batch of as many rows.
class DecodeAttention::Plan : public ItemPlan<DecodePart> {
 public:
  using ItemPlan::ItemPlan;
  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch, cudaStream_t stream);
  int blocks() const { return blocks_; }  ///< on a multiprocessor

 private:
  int blocks_ = 1;
};

Result<void> DecodeAttention::Plan::make(const AttentionShape& shape, const AttentionBatch& batch,
                                         cudaStream_t stream) {
  const auto rows = static_cast<std::int64_t>(batch.sequences.size());
  const std::int64_t row_blocks = blocks_of_row(shape);
  blocks_ = decode_blocks(rows * row_blocks);
  const std::int64_t rows_at_once =
      std::max<std::int64_t>(std::int64_t{cuda::multiprocessors()} * blocks_ / row_blocks, 1);
  const bool whole_rows = shape.latent > 0;  // its kernel shares them out itself
  TROUPE_TRY(const std::span<DecodePart> parts,
             begin(whole_rows ? rows : rows + rows_at_once, rows));
  // The first position that a row sees.
  const auto first_of = [&](std::int32_t row) -> std::int32_t {
    const std::int32_t own = batch.sequences[static_cast<std::size_t>(row)].first_position;
    const std::int64_t before =
        shape.window == 0 ? own : std::min<std::int64_t>(own, shape.window - 1);
    return own - static_cast<std::int32_t>(before);
  };
  const auto pages_of = [&](std::int32_t row) -> std::int64_t {
    return batch.sequences[static_cast<std::size_t>(row)].first_position / attention_page -
           first_of(row) / attention_page + 1;
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
  std::size_t next = 0;
  std::int32_t slot = 0;
  for (const std::int32_t row : order) {
    const SequenceSpan& span = batch.sequences[static_cast<std::size_t>(row)];
    const std::int32_t positions = span.first_position + 1;
    const std::int64_t about = parts_of(row);
    const auto pages = static_cast<std::int32_t>((pages_of(row) + about - 1) / about);
    const auto count = static_cast<std::int32_t>((pages_of(row) + pages - 1) / pages);
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t first_page = first_of(row) / attention_page + i * pages;
      const std::int32_t left = positions - first_page * attention_page;
      parts[next++] = {.row = row,
                       .table = span.block_offset,
                       .first_page = first_page,
                       .positions = std::min(left, pages * attention_page),
                       .index = i,
                       .parts = count,
                       .slot = slot,
                       .hidden = i == 0 ? first_of(row) % attention_page : 0};
    }
    if (count > 1) slot += count;
  }
  return finish(next, stream);
}

Result<std::unique_ptr<DecodeAttention>> DecodeAttention::create() {
  std::unique_ptr<DecodeAttention> attention(new DecodeAttention());
  // Rows that are cut have at most as many parts as there are blocks at once, and one more each,
  // which is no more than that again.
  const std::int64_t slots = std::int64_t{2} * max_decode_blocks * cuda::multiprocessors();
  TROUPE_TRY(attention->parts_,
             PartMemory::create(slots * max_part_sums, slots * max_decode_columns, slots));
  return Result<std::unique_ptr<DecodeAttention>>(std::move(attention));
}

DecodeAttention::~DecodeAttention() = default;

bool DecodeAttention::supports(const AttentionShape& shape, DType stored, DType activation) {
  return hopper_kernels_run() && activation == DType::bf16 && stored == DType::bf16 &&
         (decode_kernel_takes(shape) || latent_decode_kernel_takes(shape));
}

bool DecodeAttention::suits(const AttentionBatch& batch) {
  return batch.block_size % attention_page == 0 &&
         std::ranges::all_of(batch.sequences, [](const SequenceSpan& s) { return s.rows == 1; });
}

Result<void> DecodeAttention::plan(const AttentionShape& shape, const AttentionBatch& batch,
                                   cudaStream_t stream) {
  TROUPE_TRY(Plan* const plan, plans_.of(batch, stream));
  return plan->make(shape, batch, stream);
}

Result<void> DecodeAttention::attend(const Tensor& q, const AttentionShape& shape,
                                     const AttentionBatch& batch, const KvLayer& cache,
                                     const Tensor& out, cudaStream_t stream) {
  TROUPE_TRY(const Plan* const plan, plans_.made_for(batch));
  const DecodePass pass =
      paged_pass(q, shape, batch, cache, out, *plan, parts_, blocks_of_row(shape));
  const cudaError_t launched =
      shape.latent > 0
          ? attend_latent_rows(pass, cache.keys.elements() / latent_key_dim / attention_page,
                               latent_blocks(plan->entries()), stream)
          : launch_decode_attention(pass, plan->blocks(), static_cast<int>(shape.head_dim), stream);
  return cuda_done(launched, "the launch of attention");
}

}  // namespace troupe
