#include "models/ops/cuda/attention/invariant_attention.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "models/ops/cuda/attention/invariant_attention_kernel.hpp"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/gpu_attention.hpp"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace {

constexpr std::int64_t part_positions = attention_page * invariant_part_pages;
/// Room for parts: their sums, the columns that have them, and the rows' counters.
constexpr std::int64_t max_sums = std::int64_t{31} << 19, max_scales = std::int64_t{1} << 18;
constexpr std::int64_t max_counters = std::int64_t{1} << 16;
/// Heads of 64 elements have the most columns.
static_assert(max_scales >= max_sums / 64);

std::int64_t blocks_of_row(const AttentionShape& shape) {
  return row_blocks_of(shape, max_invariant_heads);
}

/// The number of parts, of entries with so many blocks of `columns` columns, for which there is
/// room.
std::int64_t slots_of(std::int64_t row_blocks, std::int64_t columns, std::int64_t dim) {
  return std::min(max_sums / (row_blocks * columns * dim), max_counters / row_blocks);
}

/// Rows of one sequence that read their context together.
struct Group {
  std::int32_t row, rows, position, table;
  std::int64_t first_part;  ///< that the first row sees

  std::int64_t parts() const { return (position + rows - 1) / part_positions + 1 - first_part; }
};

}  // namespace

/// The items of a batch, longest first. The number of entries depends only on the number of single
/// rows.
class InvariantAttention::Plan : public ItemPlan<InvariantItem> {
 public:
  using ItemPlan::ItemPlan;
  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch, cudaStream_t stream);
  InvariantColumns columns() const { return columns_; }

 private:
  void make_groups(const AttentionBatch& batch, std::int64_t max_rows, std::int64_t window);

  InvariantColumns columns_ = InvariantColumns::eight;
  std::vector<Group> groups_;
};

void InvariantAttention::Plan::make_groups(const AttentionBatch& batch, std::int64_t max_rows,
                                           std::int64_t window) {
  groups_.clear();
  for (const SequenceSpan& span : batch.sequences) {
    for (std::int32_t done = 0; done < span.rows; done += static_cast<std::int32_t>(max_rows)) {
      const auto rows =
          static_cast<std::int32_t>(std::min<std::int64_t>(max_rows, span.rows - done));
      const std::int32_t position = span.first_position + done;
      const std::int64_t first_seen =
          window == 0 ? 0 : std::max<std::int64_t>(position - window + 1, 0);
      groups_.push_back(
          {span.first_row + done, rows, position, span.block_offset, first_seen / part_positions});
    }
  }
  std::ranges::stable_sort(groups_, std::greater<>(), &Group::parts);
}

Result<void> InvariantAttention::Plan::make(const AttentionShape& shape,
                                            const AttentionBatch& batch, cudaStream_t stream) {
  const bool single =
      std::ranges::all_of(batch.sequences, [](const SequenceSpan& span) { return span.rows == 1; });
  columns_ = single ? InvariantColumns::eight : InvariantColumns::sixteen;
  const auto columns = static_cast<std::int64_t>(columns_);
  const std::int64_t block_heads =
      std::min<std::int64_t>(shape.heads / shape.kv_heads, max_invariant_heads);
  make_groups(batch, single ? 1 : columns / block_heads, shape.window);
  const std::int64_t row_blocks = blocks_of_row(shape);
  const std::int64_t slots = slots_of(row_blocks, columns, shape.head_dim);
  const std::int64_t at_once = std::max<std::int64_t>(
      std::int64_t{cuda::multiprocessors()} * invariant_blocks / row_blocks, 1);
  const auto groups = static_cast<std::int64_t>(groups_.size());
  TROUPE_TRY(const std::span<InvariantItem> all_items, begin(groups + at_once, groups));
  std::int64_t all_parts = 0;
  for (const Group& group : groups_) all_parts += group.parts();
  // No item is longer than an equal share for each block, as far as there is memory for parts.
  const std::int64_t longest = (all_parts + at_once - 1) / at_once;
  std::size_t next = 0;
  std::int64_t slot = 0;
  for (const Group& group : groups_) {
    const std::int64_t parts = group.parts();
    const bool cut = parts > longest && slot + parts <= slots;
    const std::int64_t each = cut ? longest : parts;
    const std::int64_t items = (parts + each - 1) / each;
    for (std::int64_t i = 0; i < items; ++i) {
      all_items[next++] = {.row = group.row,
                           .rows = group.rows,
                           .position = group.position,
                           .table = group.table,
                           .first_part = static_cast<std::int32_t>(group.first_part + i * each),
                           .parts = static_cast<std::int32_t>(std::min(each, parts - i * each)),
                           .items = static_cast<std::int32_t>(items),
                           .slot = static_cast<std::int32_t>(slot - group.first_part)};
    }
    if (cut) slot += parts;
  }
  return finish(next, stream);
}

Result<std::unique_ptr<InvariantAttention>> InvariantAttention::create() {
  std::unique_ptr<InvariantAttention> attention(new InvariantAttention());
  TROUPE_TRY(attention->parts_, PartMemory::create(max_sums, max_scales, max_counters));
  return Result<std::unique_ptr<InvariantAttention>>(std::move(attention));
}

InvariantAttention::~InvariantAttention() = default;

bool InvariantAttention::supports(const AttentionShape& shape, DType stored, DType activation) {
  return hopper_kernels_run() && activation == DType::bf16 && stored == DType::bf16 &&
         invariant_kernel_takes(shape);
}

bool InvariantAttention::suits(const AttentionBatch& batch) {
  return batch.block_size % attention_page == 0;
}

Result<void> InvariantAttention::plan(const AttentionShape& shape, const AttentionBatch& batch,
                                      cudaStream_t stream) {
  TROUPE_TRY(Plan* const plan, plans_.of(batch, stream));
  return plan->make(shape, batch, stream);
}

Result<void> InvariantAttention::attend(const Tensor& q, const AttentionShape& shape,
                                        const AttentionBatch& batch, const KvLayer& cache,
                                        const Tensor& out, cudaStream_t stream) {
  TROUPE_TRY(const Plan* const plan, plans_.made_for(batch));
  const InvariantPass pass =
      paged_pass(q, shape, batch, cache, out, *plan, parts_, blocks_of_row(shape));
  return cuda_done(
      launch_invariant_attention(pass, plan->columns(), static_cast<int>(shape.head_dim), stream),
      "the launch of attention");
}

}  // namespace troupe
