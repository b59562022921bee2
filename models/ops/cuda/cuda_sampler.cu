// Choice of tokens as models/sampler/sampler.cpp makes it, the same token for the same logits: each
// row by a cluster of blocks that holds it in shared memory.
//
// Where top_k cuts, its candidates are found first: a value that k or a few more of 512 groups'
// bests reach is a bound that little more than k logits reach. The few are listed, and one block
// weighs them pair by pair, in no order. Where top_p alone cuts, a histogram of the weights'
// leading bits shows where its limit is crossed; what lies above is few enough for the list of most
// models. Otherwise, and where more is equal than the list holds, keys are narrowed to the last
// bit.
#include <algorithm>

#include "models/ops/cuda/cuda_ops_class.hpp"
#include "models/ops/cuda/row_edits.cuh"
#include "models/ops/cuda/row_parts.cuh"
#include "models/ops/cuda/small_copy.hpp"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

/// A row's parameters beside what its logits say.
struct Choice {
  SampledRow row;
  float max;
  float scale;

  __device__ std::uint64_t target(std::uint64_t total) const {
    return __umul64hi(random_bits(row.seed, row.position, row.choice), total);
  }
};

/// By part 0: chooses from its list of logits, or of weights, of which top_p leaves what reaches
/// `limit`; 0: of what is listed.
__device__ void choose_from_list(PartMemory& memory, int listed, const Choice& choice,
                                 bool are_weights, std::uint64_t limit, std::int32_t* chosen) {
  const int own = threadIdx.x;
  const bool here = own < listed;
  const std::int32_t id = here ? memory.list_ids[own] : -1;
  float weight = here ? memory.list_values[own] : 0.0F;
  if (here && !are_weights) {
    int larger = 0;
#pragma unroll 4
    for (int i = 0; i < listed; ++i) larger += memory.list_values[i] > weight ? 1 : 0;
    weight = weight_of(weight, choice.max, choice.scale);
    if (larger >= choice.row.top_k || weight < choice.row.min_p) weight = 0.0F;
  }
  __syncthreads();
  if (here) {
    memory.list_values[own] = weight;
    memory.list_wholes[own] = whole(weight);
  }
  __syncthreads();
  if (choice.row.top_p < 1.0F) {
    std::uint64_t before = 0, total = 0;
#pragma unroll 4
    for (int i = 0; here && i < listed; ++i) {
      const float other = memory.list_values[i];
      const std::uint64_t added = memory.list_wholes[i];
      before += other > weight || (other == weight && memory.list_ids[i] < id) ? added : 0;
      total += added;
    }
    if (before >= (limit != 0 ? limit : limit_of(choice.row.top_p, total))) weight = 0.0F;
    __syncthreads();
    if (here) memory.list_wholes[own] = whole(weight);
    __syncthreads();
  }
  std::uint64_t before = 0, total = 0;
#pragma unroll 4
  for (int i = 0; here && i < listed; ++i) {
    const std::uint64_t added = memory.list_wholes[i];
    before += memory.list_ids[i] < id ? added : 0;
    total += added;
  }
  const std::uint64_t target = choice.target(total);
  if (here && before <= target && target < before + memory.list_wholes[own]) *chosen = id;
}

/// Chooses from weights of which top_p leaves some; the weights are the part's values, and their
/// leading bits in the histogram.
__device__ void choose_from_nucleus(RowPart& part, const Choice& choice, std::int32_t* chosen) {
  const auto shift = [](std::uint32_t bin) { return shift_of(bin >> 2); };
  const Crossing leading = part.find_crossing(
      shift, [&](std::uint64_t total) { return limit_of(choice.row.top_p, total); });
  const std::uint64_t limit = limit_of(choice.row.top_p, leading.total);
  const auto key = [](float weight) { return __float_as_uint(weight); };
  const std::uint32_t listed =
      part.list([&](float weight, std::int32_t) { return key(weight) >> 21 >= leading.bin; });
  if (listed <= most_listed) {
    if (part.is_first()) {
      choose_from_list(part.memory(), static_cast<int>(listed), choice, true, limit, chosen);
    }
    return;
  }
  const CrossingKey last = part.narrow(leading, limit, shift(leading.bin), key,
                                       [](float weight) { return digits_of(weight); });
  // Of those that equal the last, the lower ids stay.
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

/// Chooses from all tokens whose logits are at least `floor`.
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

/// Whether a row's logits change first.
__host__ __device__ bool has_edits(const RowEdits& edits) {
  return (edits.allowed | edits.masked | edits.biased | edits.prompt | edits.output) != 0;
}

/// Bytes that a block holds of each logit.
constexpr int bytes_of_token(bool edited) {
  return static_cast<int>(sizeof(float)) + (edited ? TokenMarks::of_token : 0);
}

template <bool edited>
__global__ void __cluster_dims__(row_parts, 1, 1) __launch_bounds__(part_threads, edited ? 1 : 2)
    choose_tokens(const float* logits, std::int32_t vocab, std::int32_t chunk,
                  const SampledRow* rows, const std::int32_t* tokens, std::int32_t* ids) {
  extern __shared__ __align__(16) unsigned char memory[];
  begin_early_kernel();
  RowPart part(*reinterpret_cast<PartMemory*>(memory), vocab, chunk);
  Choice choice{rows[blockIdx.x / row_parts], 0.0F, 0.0F};
  const SampledRow& row = choice.row;
  const float* const own = logits + std::int64_t{row.row} * vocab;
  std::int32_t* const chosen = ids + row.row;
  const bool greedy = row.temperature < greedy_below;
  const bool cut_top_k = !greedy && row.top_k > 0 && row.top_k < vocab;
  const bool few = cut_top_k && row.top_k <= most_listed / 2;

  const bool aligned = vocab % 4 == 0 && reinterpret_cast<std::uintptr_t>(logits) % 16 == 0;
  const bool changes = edited && has_edits(row.edits);
  Best best = part.load(own, aligned, few && !changes);
  bool failed = best.bad != 0;
  if (changes && !failed) {
    edit(part, row.edits, tokens, memory + part_overhead + chunk * sizeof(float));
    best = part.find_best();
    failed = !isfinite(best.logit);  // all is masked, or a penalty made it overflow
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
    if (listed <= most_listed) {
      if (part.is_first()) {
        choose_from_list(part.memory(), static_cast<int>(listed), choice, false, 0, chosen);
      }
      return;
    }
  }
  const float floor = cut_top_k ? from_ordered(part.find_kth(row.top_k).key) : -INFINITY;
  choose_from_all(part, choice, floor, chosen);
}

template <bool edited>
cudaError_t launch_choice(const Tensor& logits, const SampledRow* rows, std::size_t count,
                          const Tensor& tokens, const Tensor& ids, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const RowLaunch launch(logits[1], count, bytes_of_token(edited));
  const cudaError_t allowed = launch.allow(choose_tokens<edited>);
  if (allowed != cudaSuccess) return allowed;
  return launch_early(choose_tokens<edited>,
                      {dim3(launch.blocks), part_threads, static_cast<std::size_t>(launch.shared)},
                      stream, logits.as<float>(), launch.vocab, launch.chunk, rows,
                      static_cast<const std::int32_t*>(tokens.data()), ids.as<std::int32_t>());
}

}  // namespace
}  // namespace cuda

bool CudaOps::can_sample(const SampledRow& row, std::int64_t vocab) const {
  const bool edited = cuda::has_edits(row.edits);
  return vocab <= cuda::most_row_tokens(cuda::bytes_of_token(edited)) &&
         row.edits.output < static_cast<std::int32_t>(cuda::TokenMarks::flag);
}

void CudaOps::sample(const Tensor& logits, std::span<const SampledRow> rows, const Tensor& edited,
                     const Tensor& ids) {
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
  check(cuda::launch_choice<false>(logits, on_device, plain, edited, ids, stream()), "sample");
  check(cuda::launch_choice<true>(logits, on_device + plain, rows.size() - plain, edited, ids,
                                  stream()),
        "sample with edits");
}

}  // namespace troupe
