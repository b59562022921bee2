// Sampling with the same result as models/sampler/sampler.cpp: the same token for the same logits.
//
// Most tokens are found with one reading of the logits (row_summary.cuh, summary_choice.cuh). A row
// that needs more, or whose logits are edited first, is then read by a cluster of blocks that holds
// it in shared memory.
//
// There, if top_k cuts, its candidates are found first: a value reached by the maxima of k or a few
// more of 512 groups is a bound that little more than k logits reach. These are listed, and one
// block compares them pair by pair, in no order. If only top_p cuts, a histogram of the weights'
// leading bits shows where its limit is crossed; for most models the tokens above it fit the list.
// Otherwise, and if more tokens are equal than the list holds, keys are narrowed to the last bit.
#include <algorithm>

#include "models/ops/cuda/common/small_copy.hpp"
#include "models/ops/cuda/sampling/cuda_sampling_ops.hpp"
#include "models/ops/cuda/sampling/logits_edits.cuh"
#include "models/ops/cuda/sampling/row_parts.cuh"
#include "models/ops/cuda/sampling/summary_choice.cuh"
#include "parallel/device/cuda/launch.cuh"
#include "parallel/device/cuda/multiprocessors.hpp"

namespace troupe {
namespace cuda {
namespace {

/// Called by part 0: samples from its list of weights, of which top_p keeps those that reach
/// `limit`.
__device__ void choose_from_list(TokenList& list, int listed, const Choice& choice,
                                 std::uint64_t limit, std::int32_t* chosen) {
  cut_list(list, listed, [&](std::uint64_t) { return Limits{limit, limit}; });
  draw_from_list(list, listed, choice, chosen);
}

/// Called by part 0: samples from its list of logits.
__device__ void choose_from_list(TokenList& list, int listed, const Choice& choice,
                                 std::int32_t* chosen) {
  weigh_list(list, listed, choice);
  if (choice.row.top_p < 1.0F) cut_list(list, listed, LimitOfList{choice.row.top_p});
  draw_from_list(list, listed, choice, chosen);
}

/// Samples from the weights that top_p keeps; the weights are the part's values, and their leading
/// bits are in the histogram.
__device__ void choose_from_nucleus(RowPart& part, const Choice& choice, std::int32_t* chosen) {
  const auto shift = [](std::uint32_t bin) { return shift_of(bin >> 2); };
  const Crossing leading = part.find_crossing(
      shift, [&](std::uint64_t total) { return limit_of(choice.row.top_p, total); });
  const std::uint64_t limit = limit_of(choice.row.top_p, leading.total);
  const auto key = [](float weight) { return __float_as_uint(weight); };
  const std::uint32_t listed =
      part.list([&](float weight, std::int32_t) { return key(weight) >> 21 >= leading.bin; });
  if (listed <= max_listed) {
    if (part.is_first()) {
      choose_from_list(part.memory().list, static_cast<int>(listed), choice, limit, chosen);
    }
    return;
  }
  const CrossingKey last = part.narrow(leading, limit, shift(leading.bin), key,
                                       [](float weight) { return digits_of(weight); });
  // Among the tokens equal to the last one kept, the lower ids stay.
  const auto equal = [&](float weight, int) {
    return key(weight) == last.key ? whole(weight) : std::uint64_t{0};
  };
  const std::int32_t last_id =
      part.locate_for_all(part.sum<false>(equal), limit - last.above - 1, equal);
  const int first_id = part.begin();
  const auto kept = [&](float weight, int i) {
    const bool stays =
        key(weight) > last.key || (key(weight) == last.key && first_id + i <= last_id);
    return stays ? whole(weight) : std::uint64_t{0};
  };
  const PartSums sums = part.sum<false>(kept);
  part.locate(sums, choice.target(sums.total), kept, [&](std::int32_t id) { *chosen = id; });
}

/// Samples from all tokens whose logits are at least `floor`.
__device__ void choose_from_all(RowPart& part, const Choice& choice, float floor,
                                std::int32_t* chosen) {
  const auto weigh = [&](float& value) {
    const float weight = weight_of(value, choice.max, choice.scale);
    value = value < floor || weight < choice.row.min_p ? 0.0F : weight;
  };
  if (choice.row.top_p < 1.0F) {
    part.for_each<true>([&](float& value, int) {
      weigh(value);
      part.add_to_bin(__float_as_uint(value) >> 21, digits_of(value));
    });
    return choose_from_nucleus(part, choice, chosen);
  }
  const PartSums sums = part.sum<true>([&](float& value, int) {
    weigh(value);
    return whole(value);
  });
  part.locate(
      sums, choice.target(sums.total), [](float weight, int) { return whole(weight); },
      [&](std::int32_t id) { *chosen = id; });
}

/// True if a row's logits are edited first.
__host__ __device__ bool has_edits(const RowEdits& edits) {
  return (edits.allowed | edits.masked | edits.biased | edits.prompt | edits.output) != 0;
}

/// Bytes of shared memory per logit.
constexpr int bytes_of_token(bool edited) {
  return static_cast<int>(sizeof(float)) + (edited ? TokenMarks::of_token : 0);
}

/// Samples the token of a row in a cluster's shared memory.
template <bool edited>
__device__ void choose_token(RowPart& part, unsigned char* marks, const float* logits,
                             std::int32_t vocab, const SampledRow& row, const std::int32_t* tokens,
                             std::int32_t* ids) {
  Choice choice{row, 0.0F, 0.0F};
  const float* const own = logits + std::int64_t{row.row} * vocab;
  std::int32_t* const chosen = ids + row.row;
  const bool greedy = is_greedy(row);
  const bool cut_top_k = !greedy && row.top_k > 0 && row.top_k < vocab;
  const bool few = cut_top_k && row.top_k <= max_listed_top_k;

  const bool aligned = vocab % 4 == 0 && reinterpret_cast<std::uintptr_t>(logits) % 16 == 0;
  const bool changes = edited && has_edits(row.edits);
  Best best = part.load(own, aligned, few && !changes);
  bool failed = best.bad != 0;
  if (changes && !failed) {
    edit(part, row.edits, tokens, marks);
    best = part.find_best();
    failed = !isfinite(best.logit);  // all are masked, or a penalty overflowed
  }
  if (greedy || failed) {
    if (part.is_first() && threadIdx.x == 0) *chosen = failed ? -1 : best.id;
    return;
  }
  choice.max = best.logit;
  choice.scale = __fdiv_rn(1.0F, row.temperature);
  if (few) {
    const float bound = part.bound_of_best(static_cast<std::uint32_t>(row.top_k), best.logit);
    const std::uint32_t listed =
        part.list([&](float logit, std::int32_t) { return logit >= bound; });
    if (listed <= max_listed) {
      if (part.is_first()) {
        choose_from_list(part.memory().list, static_cast<int>(listed), choice, chosen);
      }
      return;
    }
  }
  const float floor = cut_top_k ? from_ordered(part.find_kth(row.top_k).key) : -INFINITY;
  choose_from_all(part, choice, floor, chosen);
}

/// One cluster per row.
template <bool edited>
__global__ void __cluster_dims__(row_parts, 1, 1) __launch_bounds__(part_threads, edited ? 1 : 2)
    choose_tokens(const float* logits, std::int32_t vocab, std::int32_t chunk,
                  const SampledRow* rows, const std::int32_t* tokens, std::int32_t* ids) {
  extern __shared__ __align__(16) unsigned char memory[];
  begin_early_kernel();
  RowPart part(*reinterpret_cast<PartMemory*>(memory), vocab, chunk);
  choose_token<edited>(part, memory + part_overhead + chunk * sizeof(float), logits, vocab,
                       rows[blockIdx.x / row_parts], tokens, ids);
}

/// For pending rows; each cluster takes one after the other.
__global__ void __cluster_dims__(row_parts, 1, 1) __launch_bounds__(part_threads, 2)
    choose_pending_tokens(const float* logits, std::int32_t vocab, std::int32_t chunk,
                          const SampledRow* rows, PendingRows* pending, std::int32_t* ids) {
  extern __shared__ __align__(16) unsigned char memory[];
  begin_early_kernel();
  const std::uint32_t count = pending->count;
  for (std::uint32_t i = blockIdx.x / row_parts; i < count;) {
    RowPart part(*reinterpret_cast<PartMemory*>(memory), vocab, chunk);
    choose_token<false>(part, nullptr, logits, vocab, rows[pending->rows[i]], nullptr, ids);
    i = part.tell([&] { return gridDim.x / row_parts + atomicAdd(&pending->taken, 1U); });
  }
}

/// The arguments of a sample() call.
struct Sampling {
  const Tensor& logits;
  const Tensor& edited;
  const Tensor& ids;
  cudaStream_t stream;
};

/// Samples `rows`, which are on the device.
template <bool edited>
cudaError_t launch_choice(const Sampling& sampling, const SampledRow* rows, std::size_t count) {
  if (count == 0) return cudaSuccess;
  const RowLaunch launch(sampling.logits[1], count, bytes_of_token(edited));
  const cudaError_t allowed = launch.allow(choose_tokens<edited>);
  if (allowed != cudaSuccess) return allowed;
  return launch_early(choose_tokens<edited>,
                      {dim3(launch.blocks), part_threads, static_cast<std::size_t>(launch.shared)},
                      sampling.stream, sampling.logits.as<float>(), launch.vocab, launch.chunk,
                      rows, static_cast<const std::int32_t*>(sampling.edited.data()),
                      sampling.ids.as<std::int32_t>());
}

/// Samples those of `rows` that are pending, at most `count`.
cudaError_t launch_pending(const Sampling& sampling, const SampledRow* rows, std::size_t count,
                           PendingRows* pending) {
  constexpr std::size_t max_clusters = 32;  // few more run at once; usually none has work
  const RowLaunch launch(sampling.logits[1], std::min(count, max_clusters), bytes_of_token(false));
  const cudaError_t allowed = launch.allow(choose_pending_tokens);
  if (allowed != cudaSuccess) return allowed;
  return launch_early(choose_pending_tokens,
                      {dim3(launch.blocks), part_threads, static_cast<std::size_t>(launch.shared)},
                      sampling.stream, sampling.logits.as<float>(), launch.vocab, launch.chunk,
                      rows, pending, sampling.ids.as<std::int32_t>());
}

/// Samples most tokens from one reading of the rows.
template <bool aligned>
cudaError_t launch_summaries(const Sampling& sampling, const SampledRow* rows, std::size_t count,
                             SummaryMemory* memory, unsigned max_blocks) {
  const auto vocab = static_cast<std::int32_t>(sampling.logits[1]);
  const float* const logits = sampling.logits.as<float>();
  const auto groups = static_cast<unsigned>(count) * static_cast<unsigned>(groups_of(vocab));
  const unsigned blocks = std::min(max_blocks, (groups + summary_warps - 1) / summary_warps);
  const cudaError_t launched =
      launch_early(summarize_rows<aligned>, {dim3(blocks), summary_threads}, sampling.stream,
                   logits, vocab, rows, static_cast<int>(count), memory);
  if (launched != cudaSuccess) return launched;
  return launch_early(choose_from_summaries<aligned>,
                      {dim3(static_cast<unsigned>(count)), choice_threads}, sampling.stream, logits,
                      vocab, rows, memory, sampling.ids.as<std::int32_t>());
}

/// Samples rows without edits.
cudaError_t launch_plain(const Sampling& sampling, std::span<const SampledRow> rows,
                         const SampledRow* on_device, SummaryMemory* memory, unsigned max_blocks) {
  const std::int64_t vocab = sampling.logits[1];
  if (vocab > max_groups * group_tokens || std::ranges::none_of(rows, is_summarized)) {
    return launch_choice<false>(sampling, on_device, rows.size());
  }
  const bool aligned =
      vocab % 4 == 0 && reinterpret_cast<std::uintptr_t>(sampling.logits.data()) % 16 == 0;
  for (std::size_t done = 0; done < rows.size(); done += max_summarized) {
    const auto some = rows.subspan(done).first(std::min(rows.size() - done, max_summarized));
    const auto launch = aligned ? launch_summaries<true> : launch_summaries<false>;
    const cudaError_t launched =
        launch(sampling, on_device + done, some.size(), memory, max_blocks);
    if (launched != cudaSuccess) return launched;
    if (std::ranges::all_of(some, is_greedy)) continue;
    const cudaError_t rest =
        launch_pending(sampling, on_device + done, some.size(), &memory->pending);
    if (rest != cudaSuccess) return rest;
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace cuda

bool CudaSamplingOps::can_sample(const SampledRow& row, std::int64_t vocab) const {
  const bool edited = cuda::has_edits(row.edits);
  return vocab <= cuda::max_row_tokens(cuda::bytes_of_token(edited)) &&
         row.edits.output < static_cast<std::int32_t>(cuda::TokenMarks::flag);
}

void CudaSamplingOps::do_sample(const Tensor& logits, std::span<const SampledRow> rows,
                                const Tensor& edited, const Tensor& ids) {
  if (rows.empty()) return;
  if (rows.size_bytes() > sampled_rows_->bytes()) {
    return check(fail(ErrorCode::invalid_argument, "sample: {} rows at once", rows.size()));
  }
  check(copy_small(sampled_rows_->data(), rows.data(), rows.size_bytes(), cudaMemcpyHostToDevice,
                   stream()),
        "upload of rows to sample");
  // A block with marks for edits has a multiprocessor to itself.
  const auto first =
      std::ranges::find_if(rows, [](const SampledRow& row) { return cuda::has_edits(row.edits); });
  const auto plain = static_cast<std::size_t>(first - rows.begin());
  const auto* const on_device = static_cast<const SampledRow*>(sampled_rows_->data());
  const cuda::Sampling sampling{logits, edited, ids, stream()};
  check(cuda::launch_plain(sampling, rows.first(plain), on_device,
                           static_cast<cuda::SummaryMemory*>(row_summaries_->data()),
                           static_cast<unsigned>(cuda::multiprocessors() * cuda::summary_blocks)),
        "sample");
  check(cuda::launch_choice<true>(sampling, on_device + plain, rows.size() - plain),
        "sample with edits");
}

}  // namespace troupe
