#include "models/ops/cuda/attention/coded_attention.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "models/ops/cuda/attention/coded_pages.hpp"
#include "models/ops/cuda/cuda_error.hpp"
#include "models/ops/gpu_attention.hpp"

namespace troupe {
namespace {

/// A sequence with more rows than this reads its pages once for all of them, though widening them
/// costs as much as reading codes five times.
constexpr std::int32_t most_single_rows = 8;
/// Of keys, or of values.
constexpr std::int64_t widened_bytes = static_cast<std::int64_t>(coded_prompt_bytes) / 2;
constexpr std::int64_t smallest_page = 16 * 64 * static_cast<std::int64_t>(sizeof(__nv_bfloat16));
constexpr std::int64_t most_pages = widened_bytes / smallest_page;
/// Groups of a batch, at most: FlashAttention tells their plans apart by numbers of parts.
constexpr int most_groups = 1 << 12;

/// The pages that `bytes` of keys hold.
std::int64_t pages_in_memory(const AttentionShape& shape, std::int32_t block_size) {
  const auto element = static_cast<std::int64_t>(sizeof(__nv_bfloat16));
  const std::int64_t behind = FlashAttention::elements_behind(shape) * element;
  return (widened_bytes - behind) / (shape.kv_heads * block_size * shape.head_dim * element);
}

}  // namespace

/// Adjacent sequences whose pages are widened at a time.
struct CodedAttention::Group {
  std::vector<SequenceSpan> sequences;  ///< rows from the group's first, tables of widened pages
  Slice rows;                           ///< of the batch
  Slice pages;                          ///< of the plan's places
};

/// What becomes of a batch's sequences. Its items are the widened pages' places in the batch's
/// block tables.
class CodedAttention::Plan : public ItemPlan<std::int32_t> {
 public:
  using ItemPlan::ItemPlan;

  /// Shares out the sequences. Errors: resource_exhausted, internal.
  Result<void> make(const AttentionShape& shape, const AttentionBatch& batch, cudaStream_t stream);

  std::vector<SequenceSpan> single_rows;  ///< each row as a sequence
  std::vector<SequenceSpan> long_prompts;
  std::vector<SequenceSpan> left;
  std::vector<Group> groups;
  bool is_mixed = false;  ///< there are sequences of several rows
  int number = -1;        ///< of this plan among all

 private:
  /// False if its pages do not fit.
  bool add_to_groups(const AttentionShape& shape, const SequenceSpan& span,
                     std::int32_t block_size);

  std::vector<std::int32_t> places_;
};

bool CodedAttention::Plan::add_to_groups(const AttentionShape& shape, const SequenceSpan& span,
                                         std::int32_t block_size) {
  const std::int32_t end = span.first_position + span.rows;
  const auto window = static_cast<std::int32_t>(shape.window);
  const std::int32_t oldest = window == 0 ? 0 : std::max(span.first_position - window + 1, 0);
  const std::int32_t first_page = oldest / block_size;
  const std::int32_t pages = (end + block_size - 1) / block_size - first_page;
  const std::int64_t most = pages_in_memory(shape, block_size);
  if (pages > most || std::ssize(groups) >= most_groups) return false;
  const bool continues = !groups.empty() && groups.back().rows.end() == span.first_row &&
                         groups.back().pages.count + pages <= most;
  if (!continues) {
    groups.push_back(
        {.sequences = {}, .rows = {span.first_row, 0}, .pages = {std::ssize(places_), 0}});
  }
  Group& group = groups.back();
  group.sequences.push_back({.first_row = static_cast<std::int32_t>(group.rows.count),
                             .rows = span.rows,
                             .first_position = span.first_position - first_page * block_size,
                             .block_offset = static_cast<std::int32_t>(group.pages.count)});
  group.rows.count += span.rows;
  group.pages.count += pages;
  for (std::int32_t p = 0; p < pages; ++p) places_.push_back(span.block_offset + first_page + p);
  return true;
}

Result<void> CodedAttention::Plan::make(const AttentionShape& shape, const AttentionBatch& batch,
                                        cudaStream_t stream) {
  single_rows.clear();
  long_prompts.clear();
  left.clear();
  groups.clear();
  places_.clear();
  is_mixed = false;
  for (const SequenceSpan& span : batch.sequences) {
    is_mixed = is_mixed || span.rows > 1;
    if (span.rows <= most_single_rows) {
      for (std::int32_t row = 0; row < span.rows; ++row) {
        single_rows.push_back(
            {span.first_row + row, 1, span.first_position + row, span.block_offset});
      }
    } else if (FlashInferHopper::suits(shape, span)) {
      long_prompts.push_back(span);
    } else if (!add_to_groups(shape, span, batch.block_size)) {
      (FlashInferHopper::takes(shape, span) ? long_prompts : left).push_back(span);
    }
  }
  if (places_.empty()) return {};
  TROUPE_TRY(const std::span<std::int32_t> items,
             begin(std::ssize(places_), std::ssize(batch.sequences)));
  std::ranges::copy(places_, items.begin());
  return finish(items.size(), stream);
}

Result<std::unique_ptr<CodedAttention>> CodedAttention::create(DecodeAttention& decode,
                                                               FlashAttention& flash) {
  std::unique_ptr<CodedAttention> attention(new CodedAttention(decode, flash));
  // Zeros: what is behind the last page must be numbers.
  TROUPE_TRY(attention->widened_,
             DeviceBuffer::allocate_zeros(coded_prompt_bytes, "memory for keys and values"));
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(most_pages));
  std::iota(numbers.begin(), numbers.end(), 0);
  const std::span<const std::int32_t> all(numbers);
  TROUPE_TRY(attention->counted_, DeviceBuffer::allocate(all.size_bytes(), "memory for attention"));
  TROUPE_CHECK(cuda_done(
      cudaMemcpy(attention->counted_.data(), all.data(), all.size_bytes(), cudaMemcpyHostToDevice),
      "the upload of block numbers"));
  // The copy may still be under way, and streams that do not wait for the default one use it.
  TROUPE_CHECK(cuda_done(cudaStreamSynchronize(nullptr), "the upload of block numbers"));
  return Result<std::unique_ptr<CodedAttention>>(std::move(attention));
}

CodedAttention::CodedAttention(DecodeAttention& decode, FlashAttention& flash)
    : decode_(decode), flash_(flash) {}
CodedAttention::~CodedAttention() = default;

bool CodedAttention::supports(const AttentionShape& shape, DType stored, DType activation) {
  return is_code(stored) && DecodeAttention::supports(shape, stored, activation);
}

AttentionBatch CodedAttention::widened_batch(const Plan& plan, std::size_t index,
                                             const AttentionBatch& batch) const {
  const Group& group = plan.groups[index];
  AttentionBatch widened;
  widened.part = plan.number * most_groups + static_cast<int>(index);
  widened.block_tables = Tensor(counted_.as<std::int32_t>(), DType::i32, Shape{group.pages.count});
  widened.sequences = group.sequences;
  widened.block_size = batch.block_size;
  return widened;
}

Result<void> CodedAttention::plan(const AttentionShape& shape, const AttentionBatch& batch,
                                  cudaStream_t stream) {
  TROUPE_TRY(Plan* const plan, plans_.of(batch, stream));
  if (plan->number < 0) plan->number = plans_made_++;
  TROUPE_CHECK(plan->make(shape, batch, stream));
  for (std::size_t i = 0; i < plan->groups.size(); ++i) {
    TROUPE_CHECK(flash_.plan(shape, widened_batch(*plan, i, batch), stream));
  }
  if (!plan->single_rows.empty()) {
    AttentionBatch rows = batch;
    rows.sequences = plan->single_rows;
    TROUPE_CHECK(decode_.plan_rows(shape, rows, !plan->is_mixed && batch.part == 0, stream));
  }
  return {};
}

Result<void> CodedAttention::attend(const Tensor& q, const AttentionShape& shape,
                                    const AttentionBatch& batch, const KvLayer& cache,
                                    const Tensor& out, cudaStream_t stream) {
  TROUPE_TRY(const Plan* const plan, plans_.made_for(batch));
  auto* const keys = widened_.as<__nv_bfloat16>();
  auto* const values = keys + widened_bytes / static_cast<std::int64_t>(sizeof *keys);
  for (std::size_t i = 0; i < plan->groups.size(); ++i) {
    const Group& group = plan->groups[i];
    const CodedSource source{.cache = cache,
                             .table = batch.block_tables.as<std::int32_t>(),
                             .places = plan->items() + group.pages.begin,
                             .kv_heads = shape.kv_heads,
                             .head_dim = shape.head_dim,
                             .block_size = batch.block_size};
    TROUPE_CHECK(
        cuda_done(widen_pages(source, {.pages = group.pages.count, .heads = {0, shape.kv_heads}},
                              keys, values, stream),
                  "the widening of keys and values"));
    const Shape pages{group.pages.count, shape.kv_heads, batch.block_size, shape.head_dim};
    const KvLayer widened{Tensor(keys, DType::bf16, pages), Tensor(values, DType::bf16, pages)};
    const AttentionBatch of_group = widened_batch(*plan, i, batch);
    // With many groups the first ones' plans have made room for others.
    if (!flash_.has_plan(of_group)) TROUPE_CHECK(flash_.plan(shape, of_group, stream));
    TROUPE_CHECK(flash_.attend(q.rows(group.rows.begin, group.rows.count), shape, of_group, widened,
                               out.rows(group.rows.begin, group.rows.count), stream));
  }
  for (const SequenceSpan& span : plan->long_prompts) {
    TROUPE_CHECK(flash_.attend_long_prompt(q, shape, batch, span, cache, out, stream));
  }
  if (plan->single_rows.empty()) return {};
  return decode_.attend(q, shape, batch, cache, out, stream);
}

std::vector<SequenceSpan> CodedAttention::left(const AttentionBatch& batch) const {
  const auto plan = plans_.made_for(batch);
  return plan.ok() ? (*plan)->left : std::vector<SequenceSpan>();
}

}  // namespace troupe
