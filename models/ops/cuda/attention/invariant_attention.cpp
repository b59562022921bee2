#include "models/ops/cuda/attention/invariant_attention.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "models/ops/cuda/attention/invariant_attention_kernel.hpp"
#include "models/ops/cuda/common/hopper.hpp"
#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/gpu_attention.hpp"

namespace troupe {
namespace {

constexpr std::int64_t part_positions = invariant_page * invariant_part_pages;
constexpr std::int64_t part_bytes = std::int64_t{64} << 20;
constexpr std::int64_t max_counters = std::int64_t{1} << 16;

/// Blocks of an item: those of a KV head share its query heads.
std::int64_t row_blocks_of(const AttentionShape& shape) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  return shape.kv_heads * ((group + max_invariant_heads - 1) / max_invariant_heads);
}

/// Rows of one sequence that read their context together.
struct Group {
  std::int32_t row, rows, position, table;

  std::int64_t parts() const { return (position + rows - 1) / part_positions + 1; }
};

}  // namespace

/// Memory for the parts of contexts shared by several blocks.
struct InvariantAttention::PartMemory {
  std::byte* parts = nullptr;
  unsigned* finished = nullptr;

  ~PartMemory() {
    cudaFree(parts);
    cudaFree(finished);
  }
  Result<void> allocate() {
    const auto take = [](auto** memory, std::int64_t bytes) {
      return cuda_done(
          cudaMalloc(reinterpret_cast<void**>(memory), static_cast<std::size_t>(bytes)),
          "memory for attention");
    };
    constexpr std::int64_t counter_bytes = max_counters * std::int64_t{sizeof(unsigned)};
    TROUPE_CHECK(take(&parts, part_bytes));
    TROUPE_CHECK(take(&finished, counter_bytes));
    TROUPE_CHECK(cuda_done(cudaMemset(finished, 0, counter_bytes), "memory for attention"));
    // Streams that do not wait for the default stream use it.
    return cuda_done(cudaStreamSynchronize(nullptr), "memory for attention");
  }

  /// Scales lie before the sums.
  static constexpr std::int64_t slot_scales(std::int64_t row_blocks, std::int64_t columns) {
    return row_blocks * columns * std::int64_t{sizeof(float2)};
  }
  static constexpr std::int64_t slots(std::int64_t row_blocks, std::int64_t columns,
                                      std::int64_t dim) {
    const std::int64_t sums = row_blocks * columns * dim * std::int64_t{sizeof(float)};
    return std::min(part_bytes / (sums + slot_scales(row_blocks, columns)),
                    max_counters / row_blocks);
  }
};

/// The items of a batch, longest first. The number of entries depends only on the number of single
/// rows.
class InvariantAttention::Plan {
 public:
  static Result<std::unique_ptr<Plan>> create() {
    constexpr std::size_t bytes = std::size_t{4} << 20;  // of 131,072 items
    TROUPE_TRY(auto memory, PlanMemory::create(bytes));
    return std::unique_ptr<Plan>(new Plan(std::move(memory)));
  }

  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch, int multiprocessors,
                    cudaStream_t stream);
  InvariantColumns columns() const { return columns_; }
  std::int64_t slots() const { return slots_; }
  std::int64_t entries() const { return entries_; }
  const InvariantItem* items() const {
    return reinterpret_cast<const InvariantItem*>(memory_->device());
  }

 private:
  explicit Plan(std::unique_ptr<PlanMemory> memory) : memory_(std::move(memory)) {}
  void make_groups(const AttentionBatch& batch, std::int64_t max_rows);

  std::unique_ptr<PlanMemory> memory_;
  InvariantColumns columns_ = InvariantColumns::eight;
  std::int64_t slots_ = 0;  ///< capacity of the part memory
  std::int64_t entries_ = 0;
  std::vector<Group> groups_;
};

void InvariantAttention::Plan::make_groups(const AttentionBatch& batch, std::int64_t max_rows) {
  groups_.clear();
  for (const SequenceSpan& span : batch.sequences) {
    for (std::int32_t done = 0; done < span.rows; done += static_cast<std::int32_t>(max_rows)) {
      const auto rows =
          static_cast<std::int32_t>(std::min<std::int64_t>(max_rows, span.rows - done));
      groups_.push_back(
          {span.first_row + done, rows, span.first_position + done, span.block_offset});
    }
  }
  std::ranges::stable_sort(groups_, std::greater<>(), &Group::parts);
}

Result<void> InvariantAttention::Plan::make(const AttentionShape& shape,
                                            const AttentionBatch& batch, int multiprocessors,
                                            cudaStream_t stream) {
  const bool single =
      std::ranges::all_of(batch.sequences, [](const SequenceSpan& span) { return span.rows == 1; });
  columns_ = single ? InvariantColumns::eight : InvariantColumns::sixteen;
  const auto columns = static_cast<std::int64_t>(columns_);
  const std::int64_t block_heads =
      std::min<std::int64_t>(shape.heads / shape.kv_heads, max_invariant_heads);
  make_groups(batch, single ? 1 : columns / block_heads);
  const std::int64_t row_blocks = row_blocks_of(shape);
  slots_ = PartMemory::slots(row_blocks, columns, shape.head_dim);
  const std::int64_t at_once =
      std::max<std::int64_t>(std::int64_t{multiprocessors} * invariant_blocks / row_blocks, 1);
  const auto groups = static_cast<std::int64_t>(groups_.size());
  const std::int64_t entries = groups + at_once;
  const std::size_t bytes = static_cast<std::size_t>(entries) * sizeof(InvariantItem);
  if (bytes > memory_->bytes()) {
    return fail(ErrorCode::resource_exhausted, "attention of {} groups wants a plan of {} bytes",
                groups, bytes);
  }
  entries_ = entries;
  std::int64_t all_parts = 0;
  for (const Group& group : groups_) all_parts += group.parts();
  // No item is longer than an equal share for each block, as far as there is memory for parts.
  const std::int64_t longest = (all_parts + at_once - 1) / at_once;
  TROUPE_TRY(std::byte* const host, memory_->next());
  auto* next = reinterpret_cast<InvariantItem*>(host);
  InvariantItem* const end = next + entries_;
  std::int64_t slot = 0;
  for (const Group& group : groups_) {
    const std::int64_t parts = group.parts();
    const bool cut = parts > longest && slot + parts <= slots_;
    const std::int64_t each = cut ? longest : parts;
    const std::int64_t items = (parts + each - 1) / each;
    for (std::int64_t i = 0; i < items; ++i) {
      *next++ = {.row = group.row,
                 .rows = group.rows,
                 .position = group.position,
                 .table = group.table,
                 .first_part = static_cast<std::int32_t>(i * each),
                 .parts = static_cast<std::int32_t>(std::min(each, parts - i * each)),
                 .items = static_cast<std::int32_t>(items),
                 .slot = static_cast<std::int32_t>(slot)};
    }
    if (cut) slot += parts;
  }
  std::fill(next, end, InvariantItem{});
  return memory_->upload(bytes, stream);
}

Result<std::unique_ptr<InvariantAttention>> InvariantAttention::create() {
  std::unique_ptr<InvariantAttention> attention(new InvariantAttention());
  int device = 0;
  TROUPE_CHECK(cuda_done(cudaGetDevice(&device), "a look at the device"));
  TROUPE_CHECK(cuda_done(
      cudaDeviceGetAttribute(&attention->multiprocessors_, cudaDevAttrMultiProcessorCount, device),
      "a look at the device"));
  attention->parts_ = std::make_unique<PartMemory>();
  TROUPE_CHECK(attention->parts_->allocate());
  return Result<std::unique_ptr<InvariantAttention>>(std::move(attention));
}

InvariantAttention::~InvariantAttention() = default;

bool InvariantAttention::supports(const AttentionShape& shape, DType stored, DType activation) {
  return hopper_kernels_run() && activation == DType::bf16 && stored == DType::bf16 &&
         invariant_kernel_takes(shape);
}

bool InvariantAttention::suits(const AttentionBatch& batch) {
  return batch.block_size % invariant_page == 0;
}

Result<void> InvariantAttention::plan(const AttentionShape& shape, const AttentionBatch& batch,
                                      cudaStream_t stream) {
  TROUPE_TRY(Plan* const plan, plans_.of(batch, stream));
  return plan->make(shape, batch, multiprocessors_, stream);
}

Result<void> InvariantAttention::attend(const Tensor& q, const AttentionShape& shape,
                                        const AttentionBatch& batch, const KvLayer& cache,
                                        const Tensor& out, cudaStream_t stream) {
  const Plan* const plan = plans_.find(batch);
  if (plan == nullptr) return fail(ErrorCode::internal, "attention that was not planned");
  const bool is_capped = shape.soft_cap > 0.0F;
  const std::int64_t scales =
      plan->slots() *
      PartMemory::slot_scales(row_blocks_of(shape), static_cast<std::int64_t>(plan->columns()));
  const InvariantPass pass{
      .q = static_cast<const InvariantPass::Element*>(q.data()),
      .keys = static_cast<const InvariantPass::Element*>(cache.keys.data()),
      .values = static_cast<const InvariantPass::Element*>(cache.values.data()),
      .out = static_cast<InvariantPass::Element*>(out.data()),
      .items = plan->items(),
      .tables = batch.block_tables.as<std::int32_t>(),
      .sinks = shape.sinks.empty() ? nullptr : shape.sinks.as<float>(),
      .sums = reinterpret_cast<float*>(parts_->parts + scales),
      .scales = reinterpret_cast<float2*>(parts_->parts),
      .finished = parts_->finished,
      .entries = static_cast<int>(plan->entries()),
      .kv_heads = static_cast<int>(shape.kv_heads),
      .row_blocks = static_cast<int>(row_blocks_of(shape)),
      .group = static_cast<int>(shape.heads / shape.kv_heads),
      .pages_per_block = batch.block_size / invariant_page,
      .scale = shape.scale * log2_e * (is_capped ? 2.0F / shape.soft_cap : 1.0F),
      .soft_cap = shape.soft_cap * log2_e};
  return cuda_done(
      launch_invariant_attention(pass, plan->columns(), static_cast<int>(shape.head_dim), stream),
      "the launch of attention");
}

}  // namespace troupe
