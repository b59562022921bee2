#include "models/ops/cuda/attention/decode_attention.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "models/ops/cuda/attention/coded_decode_kernel.hpp"
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
/// A context of up to `whole_pages` is not cut, a longer one into a part for each `min_pages` at
/// most: putting parts together would cost more. As measured with heads of 128 in bf16, of which a
/// block that has a multiprocessor for itself requests 24 pages at once.
constexpr std::int64_t whole_pages = 24, min_pages = 16;
/// Of the sums of parts in shared prefixes.
constexpr std::int64_t max_prefix_sums = std::int64_t{8} << 20;
constexpr std::int64_t max_prefix_scales = max_prefix_sums / 64;  // heads of 64 have the most

/// Query heads of a block.
std::int64_t columns_of_block(const AttentionShape& shape) {
  return decode_columns(static_cast<int>(shape.head_dim), shape.heads / shape.kv_heads);
}

std::int64_t blocks_of_row(const AttentionShape& shape) {
  return shape.latent > 0 ? 1 : row_blocks_of(shape, columns_of_block(shape));
}

}  // namespace

/// The parts of a batch, longest contexts first. As many entries for every batch of as many rows.
class DecodeAttention::Plan : public ItemPlan<DecodePart> {
 public:
  using ItemPlan::ItemPlan;
  /// `prefixes`: of this batch, or null.
  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch,
                    const PrefixPlan* prefixes, cudaStream_t stream);
  /// Whether rows are over codes, and their kernel begins early.
  void set_kernel(bool reads_codes, bool early) {
    reads_codes_ = reads_codes;
    begins_early_ = early;
  }
  bool begins_early() const { return begins_early_; }
  int blocks() const { return blocks_; }  ///< on a multiprocessor
  bool cascades() const { return cascades_; }

 private:
  int blocks_ = 1;
  bool cascades_ = false;
  bool reads_codes_ = false;
  bool begins_early_ = true;
};

Result<void> DecodeAttention::Plan::make(const AttentionShape& shape, const AttentionBatch& batch,
                                         const PrefixPlan* prefixes, cudaStream_t stream) {
  cascades_ = prefixes != nullptr && prefixes->cascades();
  const auto share_of = [&](std::int32_t row) {
    return cascades_ ? prefixes->share_of(row) : PrefixPlan::Share();
  };
  const auto rows = static_cast<std::int64_t>(batch.sequences.size());
  const std::int64_t row_blocks = blocks_of_row(shape);
  const bool has_many_warps =
      reads_codes_ && shape.head_dim <= 128 && columns_of_block(shape) == decode_tile_heads;
  blocks_ = has_many_warps ? coded_decode_blocks(rows * row_blocks, cuda::multiprocessors())
                           : decode_blocks(rows * row_blocks);
  const std::int64_t rows_at_once =
      std::max<std::int64_t>(std::int64_t{cuda::multiprocessors()} * blocks_ / row_blocks, 1);
  const bool whole_rows = shape.latent > 0;  // its kernel shares them out itself
  TROUPE_TRY(const std::span<DecodePart> parts,
             begin(whole_rows ? rows : rows + rows_at_once, rows));
  // The first position that a row sees and that is in no shared prefix.
  const auto first_of = [&](std::int32_t row) -> std::int32_t {
    const std::int32_t own = batch.sequences[static_cast<std::size_t>(row)].first_position;
    const std::int64_t before =
        shape.window == 0 ? own : std::min<std::int64_t>(own, shape.window - 1);
    return std::max(own - static_cast<std::int32_t>(before), share_of(row).positions);
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
    const PrefixPlan::Share share = share_of(row);
    const std::int64_t about = parts_of(row);
    const auto pages = static_cast<std::int32_t>((pages_of(row) + about - 1) / about);
    const auto count = static_cast<std::int32_t>((pages_of(row) + pages - 1) / pages);
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t first_page = first_of(row) / attention_page + i * pages;
      const std::int32_t left = positions - first_page * attention_page;
      parts[next++] = {
          .row = span.first_row,
          .table = span.block_offset,
          .first_page = first_page,
          .positions = std::min(left, pages * attention_page),
          .index = static_cast<std::int16_t>(i),
          .parts = static_cast<std::int16_t>(count),
          .hidden = static_cast<std::int16_t>(i == 0 ? first_of(row) % attention_page : 0),
          .prefix_parts = share.parts,
          .slot = slot,
          .prefix_slot = share.slot};
    }
    if (count > 1) slot += count;
  }
  return finish(next, stream);
}

Result<std::unique_ptr<DecodeAttention>> DecodeAttention::create(bool always_cascades) {
  std::unique_ptr<DecodeAttention> attention(new DecodeAttention(always_cascades));
  // Rows that are cut have at most as many parts as there are blocks at once, and one more each,
  // which is no more than that again.
  const std::int64_t slots = std::int64_t{2} * max_coded_decode_blocks * cuda::multiprocessors();
  static_assert(max_coded_decode_blocks >= max_decode_blocks);
  TROUPE_TRY(attention->parts_,
             PartMemory::create(slots * max_part_sums, slots * max_decode_columns, slots));
  TROUPE_TRY(attention->prefix_parts_, PartMemory::create(max_prefix_sums, max_prefix_scales, 1));
  return Result<std::unique_ptr<DecodeAttention>>(std::move(attention));
}

DecodeAttention::DecodeAttention(bool always_cascades) : always_cascades_(always_cascades) {}
DecodeAttention::~DecodeAttention() = default;

bool DecodeAttention::supports(const AttentionShape& shape, DType stored, DType activation) {
  if (!hopper_kernels_run() || activation != DType::bf16) return false;
  if (is_code(stored)) return decode_kernel_takes(shape);
  return stored == DType::bf16 && (decode_kernel_takes(shape) || latent_decode_kernel_takes(shape));
}

bool DecodeAttention::suits(const AttentionBatch& batch) {
  return batch.block_size % attention_page == 0 &&
         std::ranges::all_of(batch.sequences, [](const SequenceSpan& s) { return s.rows == 1; });
}

Result<void> DecodeAttention::plan_rows(const AttentionShape& shape, const AttentionBatch& batch,
                                        bool early, cudaStream_t stream) {
  TROUPE_TRY(Plan* const plan, plans_.of(batch, stream));
  plan->set_kernel(true, early);
  return plan->make(shape, batch, nullptr, stream);
}

Result<PlannedAttention> DecodeAttention::plan(const AttentionShape& shape,
                                               const AttentionBatch& batch, cudaStream_t stream) {
  TROUPE_TRY(Plan* const plan, plans_.of(batch, stream));
  plan->set_kernel(false, true);
  PrefixPlan* prefixes = nullptr;
  if (!batch.host_block_tables.empty() && cascade_attention_takes(shape)) {
    TROUPE_TRY(prefixes, prefix_plans_.of(batch, stream));
    const std::int64_t slot_sums = blocks_of_row(shape) * columns_of_block(shape) * shape.head_dim;
    TROUPE_CHECK(prefixes->make(
        shape, batch, {.max_slots = max_prefix_sums / slot_sums, .always = always_cascades_},
        stream));
  }
  TROUPE_CHECK(plan->make(shape, batch, prefixes, stream));
  if (!plan->cascades()) return PlannedAttention();
  return PlannedAttention{.layout = 1, .shared_positions = prefixes->shared_positions()};
}

cudaError_t DecodeAttention::attend_to_prefixes(DecodePass& pass, const AttentionShape& shape,
                                                const PrefixPlan& plan, cudaStream_t stream) {
  pass.prefix_sums = prefix_parts_.sums.as<float>();
  pass.prefix_scales = prefix_parts_.scales.as<float2>();
  const PrefixPass prefixes{.pass = with_items(pass, plan.items(), plan.entries()),
                            .rows = plan.rows(),
                            .slot_blocks = pass.row_blocks,
                            .slot_columns = static_cast<int>(columns_of_block(shape))};
  return launch_prefix_attention(prefixes, static_cast<int>(shape.head_dim), stream);
}

Result<void> DecodeAttention::attend(const Tensor& q, const AttentionShape& shape,
                                     const AttentionBatch& batch, const KvLayer& cache,
                                     const Tensor& out, cudaStream_t stream) {
  TROUPE_TRY(const Plan* const plan, plans_.made_for(batch));
  DecodePass pass = paged_pass(q, shape, batch, cache, out, *plan, parts_, blocks_of_row(shape));
  if (plan->cascades()) {
    TROUPE_TRY(const PrefixPlan* const prefixes, prefix_plans_.made_for(batch));
    TROUPE_CHECK(cuda_done(attend_to_prefixes(pass, shape, *prefixes, stream),
                           "the launch of attention to prefixes"));
  }
  if (is_code(cache.keys.dtype())) {
    return cuda_done(launch_coded_decode_attention(pass, cache.keys.dtype(), cache.values.dtype(),
                                                   plan->blocks(), static_cast<int>(shape.head_dim),
                                                   plan->begins_early(), stream),
                     "the launch of attention");
  }
  const cudaError_t launched =
      shape.latent > 0
          ? attend_latent_rows(pass, cache.keys.elements() / latent_key_dim / attention_page,
                               latent_blocks(plan->entries()), stream)
          : launch_decode_attention(pass, plan->blocks(), static_cast<int>(shape.head_dim), stream);
  return cuda_done(launched, "the launch of attention");
}

}  // namespace troupe
