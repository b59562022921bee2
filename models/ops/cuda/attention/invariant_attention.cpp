#include "models/ops/cuda/attention/invariant_attention.hpp"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "models/ops/cuda/attention/invariant_attention_kernel.hpp"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/gpu_attention.hpp"
#include "models/ops/shared_prefixes.hpp"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace {

constexpr std::int64_t part_positions = attention_page * invariant_part_pages;
/// Room for parts: their sums, the columns that have them, and the rows' counters.
constexpr std::int64_t max_sums = std::int64_t{31} << 19, max_scales = std::int64_t{1} << 18;
constexpr std::int64_t max_counters = std::int64_t{1} << 16;
constexpr std::int64_t sixteen_columns = static_cast<std::int64_t>(InvariantColumns::sixteen);
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

/// Single rows, as many as a block takes at most, that read parts [0, parts) together.
struct Sharers {
  std::vector<std::int32_t> rows;
  std::int32_t table = 0;  ///< of one of them
  std::int64_t parts = 0;
};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// How the rows of a batch share parts; none where that does not pay, unless `always`.
std::vector<Sharers> sharers_of(const AttentionShape& shape, const AttentionBatch& batch,
                                std::int64_t rows_of_block, bool always) {
  if (shape.window > 0) return {};
  std::vector<Sharers> all;
  std::int64_t saved_parts = 0;
  for (const SharedPrefix& prefix : find_shared_prefixes(batch, 0)) {
    const std::int64_t parts = std::int64_t{prefix.blocks} * batch.block_size / part_positions;
    if (parts == 0) continue;
    const std::span<const std::int32_t> rows = prefix.sequences;
    const std::int64_t blocks = ceil_div(std::ssize(rows), rows_of_block);
    const auto each = static_cast<std::size_t>(ceil_div(std::ssize(rows), blocks));
    for (std::size_t first = 0; first < rows.size(); first += each) {
      const auto some = rows.subspan(first, std::min(each, rows.size() - first));
      const SequenceSpan& span = batch.sequences[static_cast<std::size_t>(some.front())];
      all.push_back({{some.begin(), some.end()}, span.block_offset, parts});
    }
    saved_parts += (std::ssize(rows) - blocks) * parts;
  }
  const std::int64_t bytes_of_part =
      part_positions * shape.cached_elements() * static_cast<std::int64_t>(size_of(DType::bf16));
  const bool pays =
      always || cascade_pays(std::ssize(batch.sequences), saved_parts * bytes_of_part);
  return pays ? all : std::vector<Sharers>();
}

/// Slots for all parts of the rows that share some.
std::int64_t slots_wanted(std::span<const Sharers> sharers, const AttentionBatch& batch) {
  std::int64_t slots = 0;
  for (const Sharers& some : sharers) {
    for (const std::int32_t row : some.rows) {
      slots += batch.sequences[static_cast<std::size_t>(row)].first_position / part_positions + 1;
    }
  }
  return slots;
}

}  // namespace

/// The items of a batch, longest first. The number of entries depends only on the number of single
/// rows, and on whether some share parts.
class InvariantAttention::Plan : public ItemPlan<InvariantItem> {
 public:
  using ItemPlan::ItemPlan;
  /// `always`: rows share parts also where that does not pay.
  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch, bool always,
                    cudaStream_t stream);
  InvariantColumns columns() const { return columns_; }
  int slot_columns() const { return slot_columns_; }
  std::int64_t shared_positions() const { return shared_positions_; }
  const InvariantRow* rows() const {
    return reinterpret_cast<const InvariantRow*>(items() + entries());
  }

 private:
  void make_groups(const AttentionBatch& batch, std::int64_t max_rows, std::int64_t window);
  /// make() of single rows of which some share parts, for all of which there are slots.
  Result<void> make_cascade(std::span<const Sharers> sharers, std::int64_t at_once,
                            std::int64_t slots, cudaStream_t stream);

  InvariantColumns columns_ = InvariantColumns::eight;
  int slot_columns_ = 0;
  std::vector<Group> groups_;
  std::int64_t shared_positions_ = 0;  // 0: no cascade
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
                                            const AttentionBatch& batch, bool always,
                                            cudaStream_t stream) {
  const bool single =
      std::ranges::all_of(batch.sequences, [](const SequenceSpan& span) { return span.rows == 1; });
  columns_ = single ? InvariantColumns::eight : InvariantColumns::sixteen;
  const auto columns = static_cast<std::int64_t>(columns_);
  slot_columns_ = static_cast<int>(columns);
  shared_positions_ = 0;
  const std::int64_t block_heads =
      std::min<std::int64_t>(shape.heads / shape.kv_heads, max_invariant_heads);
  make_groups(batch, single ? 1 : columns / block_heads, shape.window);
  const std::int64_t row_blocks = blocks_of_row(shape);
  const std::int64_t slots = slots_of(row_blocks, columns, shape.head_dim);
  const std::int64_t at_once = std::max<std::int64_t>(
      std::int64_t{cuda::multiprocessors()} * invariant_blocks / row_blocks, 1);
  if (single) {
    const std::vector<Sharers> sharers =
        sharers_of(shape, batch, sixteen_columns / block_heads, always);
    const std::int64_t smaller = slots_of(row_blocks, block_heads, shape.head_dim);
    if (slots_wanted(sharers, batch) <= smaller && !sharers.empty()) {
      slot_columns_ = static_cast<int>(block_heads);
      return make_cascade(sharers, at_once, smaller, stream);
    }
  }
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

Result<void> InvariantAttention::Plan::make_cascade(std::span<const Sharers> sharers,
                                                    std::int64_t at_once, std::int64_t slots,
                                                    cudaStream_t stream) {
  columns_ = InvariantColumns::sixteen;
  const auto groups = std::ssize(groups_);
  // Items of shared parts have two rows or more each, but the last ones of a prefix may have one.
  const std::int64_t most_sharers = groups * 2 / 3 + 1;
  const std::size_t room = groups_.size();
  TROUPE_TRY(const std::span<InvariantItem> items,
             begin(groups + most_sharers + at_once, groups, room * sizeof(InvariantRow)));
  const std::span rows(reinterpret_cast<InvariantRow*>(behind().data()), room);
  std::vector<std::int64_t> shared_parts(room);  // of each row
  std::int64_t all_parts = 0;
  for (const Sharers& some : sharers) {
    all_parts += some.parts * (1 - std::ssize(some.rows));
    shared_positions_ += some.parts * (std::ssize(some.rows) - 1) * part_positions;
    for (const std::int32_t row : some.rows) {
      shared_parts[static_cast<std::size_t>(row)] = some.parts;
    }
  }
  for (const Group& group : groups_) all_parts += group.parts();
  const std::int64_t longest = ceil_div(all_parts, at_once);
  std::size_t next = 0;
  std::int32_t next_row = 0;
  std::vector<std::int32_t> place(room, -1);  // of each row that shares parts, in `rows`
  for (const Sharers& some : sharers) {
    for (std::int64_t part = 0; part < some.parts; part += longest) {
      const std::int64_t parts = std::min(longest, some.parts - part);
      items[next++] = {.row = next_row,
                       .rows = static_cast<std::int32_t>(some.rows.size()),
                       .position = static_cast<std::int32_t>((part + parts) * part_positions - 1),
                       .table = some.table,
                       .first_part = static_cast<std::int32_t>(part),
                       .parts = static_cast<std::int32_t>(parts),
                       .items = 0,
                       .slot = 0};
    }
    for (const std::int32_t row : some.rows) place[static_cast<std::size_t>(row)] = next_row++;
  }
  std::int64_t slot = 0;
  // Rows that share parts need slots; the others take what is left.
  std::ranges::stable_partition(
      groups_, [&](const Group& group) { return place[static_cast<std::size_t>(group.row)] >= 0; });
  for (const Group& group : groups_) {
    const auto row = static_cast<std::size_t>(group.row);
    const std::int64_t shared = shared_parts[row], own = group.parts() - shared;
    const bool cut = shared > 0 || (own > longest && slot + own <= slots);
    const std::int64_t each = cut ? longest : own;
    const std::int64_t count = ceil_div(own, each) + ceil_div(shared, longest);
    if (shared > 0) {
      rows[static_cast<std::size_t>(place[row])] = {.row = group.row,
                                                    .position = group.position,
                                                    .slot = static_cast<std::int32_t>(slot),
                                                    .items = static_cast<std::int32_t>(count)};
    }
    for (std::int64_t part = 0; part < own; part += each) {
      items[next++] = {.row = group.row,
                       .rows = 1,
                       .position = group.position,
                       .table = group.table,
                       .first_part = static_cast<std::int32_t>(shared + part),
                       .parts = static_cast<std::int32_t>(std::min(each, own - part)),
                       .items = static_cast<std::int32_t>(count),
                       .slot = static_cast<std::int32_t>(slot)};
    }
    if (cut) slot += group.parts();
  }
  std::ranges::fill(rows.subspan(static_cast<std::size_t>(next_row)), InvariantRow{});
  return finish(next, stream);
}

Result<std::unique_ptr<InvariantAttention>> InvariantAttention::create(bool always_cascades) {
  std::unique_ptr<InvariantAttention> attention(new InvariantAttention(always_cascades));
  TROUPE_TRY(attention->parts_, PartMemory::create(max_sums, max_scales, max_counters));
  return Result<std::unique_ptr<InvariantAttention>>(std::move(attention));
}

InvariantAttention::InvariantAttention(bool always_cascades) : always_cascades_(always_cascades) {}
InvariantAttention::~InvariantAttention() = default;

bool InvariantAttention::supports(const AttentionShape& shape, DType stored, DType activation) {
  return hopper_kernels_run() && activation == DType::bf16 && stored == DType::bf16 &&
         invariant_kernel_takes(shape);
}

bool InvariantAttention::suits(const AttentionBatch& batch) {
  return batch.block_size % attention_page == 0;
}

Result<PlannedAttention> InvariantAttention::plan(const AttentionShape& shape,
                                                  const AttentionBatch& batch,
                                                  cudaStream_t stream) {
  TROUPE_TRY(Plan* const plan, plans_.of(batch, stream));
  TROUPE_CHECK(plan->make(shape, batch, always_cascades_, stream));
  const std::int64_t shared = plan->shared_positions();
  return PlannedAttention{.layout = shared > 0 ? 1 : 0, .shared_positions = shared};
}

Result<void> InvariantAttention::attend(const Tensor& q, const AttentionShape& shape,
                                        const AttentionBatch& batch, const KvLayer& cache,
                                        const Tensor& out, cudaStream_t stream) {
  TROUPE_TRY(const Plan* const plan, plans_.made_for(batch));
  const InvariantPass pass{
      paged_pass(q, shape, batch, cache, out, *plan, parts_, blocks_of_row(shape)), plan->rows(),
      plan->slot_columns()};
  return cuda_done(
      launch_invariant_attention(pass, plan->columns(), static_cast<int>(shape.head_dim), stream),
      "the launch of attention");
}

}  // namespace troupe
