// Log-probabilities with the same result as models/sampler/sampler.cpp: the same weights, the same
// sum, and the best in the same order. Each row by a cluster of blocks that holds it in shared
// memory.
#include "models/ops/cuda/common/small_copy.hpp"
#include "models/ops/cuda/sampling/cuda_sampling_ops.hpp"
#include "models/ops/cuda/sampling/row_parts.cuh"

namespace troupe {
namespace cuda {
namespace {

/// Called by part 0: writes the `wanted` best of its list, best first.
__device__ void write_best(const TokenList& list, int listed, int wanted, RowScores& scores) {
  const int own = static_cast<int>(threadIdx.x);
  if (own >= listed) return;
  const float logit = list.values[own];
  const std::int32_t id = list.ids[own];
  int place = 0;
#pragma unroll 4
  for (int i = 0; i < listed; ++i) {
    const float other = list.values[i];
    place += other > logit || (other == logit && list.ids[i] < id) ? 1 : 0;
  }
  if (place >= wanted) return;
  scores.best_ids[place] = id;
  scores.best_logits[place] = logit;
}

/// Lists the `wanted` best, of equals the lower ids, and possibly others; returns how many. `best`:
/// the first.
__device__ std::uint32_t list_best(RowPart& part, std::uint32_t wanted, float best) {
  const float bound = part.bound_of_best(wanted, best);
  const std::uint32_t listed = part.list([&](float logit, std::int32_t) { return logit >= bound; });
  if (listed <= max_listed) return listed;
  const CrossingKey last = part.find_kth(wanted);
  const float least = from_ordered(last.key);
  const auto equal = [&](float logit, int) { return std::uint64_t{logit == least ? 1U : 0U}; };
  const std::int32_t last_id =
      part.locate_for_all(part.sum<false>(equal), wanted - last.above - 1, equal);
  return part.list([&](float logit, std::int32_t id) {
    return logit > least || (logit == least && id <= last_id);
  });
}

__global__ void __cluster_dims__(row_parts, 1, 1) __launch_bounds__(part_threads, 2)
    score_tokens(const float* logits, std::int32_t vocab, std::int32_t chunk, const ScoredRow* rows,
                 const std::int32_t* ids, RowScores* all_scores) {
  extern __shared__ __align__(16) unsigned char memory[];
  RowPart part(*reinterpret_cast<PartMemory*>(memory), vocab, chunk);
  const ScoredRow row = rows[blockIdx.x / row_parts];
  const std::int32_t id = row.id >= 0 ? row.id : ids[row.row];
  const float* const own = logits + std::int64_t{row.row} * vocab;
  RowScores& scores = all_scores[row.row];
  const int wanted = min(row.best, vocab);

  const bool aligned = vocab % 4 == 0 && reinterpret_cast<std::uintptr_t>(logits) % 16 == 0;
  const Best best = part.load(own, aligned, wanted > 0);
  if (best.bad != 0 || id < 0) {
    if (part.is_first() && threadIdx.x == 0) scores.rank = 0;
    return;
  }
  const float logit = own[id];
  const PartSums weights =
      part.sum<false>([&](float value, int) { return whole(weight_of(value, best.logit, 1.0F)); });
  const PartSums likelier =
      part.sum<false>([&](float value, int) { return std::uint64_t{value > logit ? 1U : 0U}; });
  if (part.is_first() && threadIdx.x == 0) {
    scores.sum = weights.total;
    scores.max = best.logit;
    scores.logit = logit;
    scores.id = id;
    scores.rank = 1 + static_cast<std::int32_t>(likelier.total);
  }
  if (wanted <= 0) return;
  const std::uint32_t listed = list_best(part, static_cast<std::uint32_t>(wanted), best.logit);
  if (part.is_first()) write_best(part.memory().list, static_cast<int>(listed), wanted, scores);
}

}  // namespace
}  // namespace cuda

bool CudaSamplingOps::can_score(const ScoredRow& row, std::int64_t vocab) const {
  return vocab <= cuda::max_row_tokens(sizeof(float)) && row.best <= RowScores::max_best;
}

void CudaSamplingOps::do_score(const Tensor& logits, std::span<const ScoredRow> rows,
                               const Tensor& ids, const Tensor& scores) {
  if (rows.empty()) return;
  if (rows.size_bytes() > sampled_rows_->bytes()) {
    return check(fail(ErrorCode::invalid_argument, "score: {} rows at once", rows.size()));
  }
  check(copy_small(sampled_rows_->data(), rows.data(), rows.size_bytes(), cudaMemcpyHostToDevice,
                   stream()),
        "upload of rows to score");
  const cuda::RowLaunch launch(logits[1], rows.size(), sizeof(float));
  check(launch.allow(cuda::score_tokens), "score");
  cuda::score_tokens<<<launch.blocks, cuda::part_threads, launch.shared, stream()>>>(
      logits.as<float>(), launch.vocab, launch.chunk,
      static_cast<const ScoredRow*>(sampled_rows_->data()), ids.as<std::int32_t>(),
      static_cast<RowScores*>(scores.data()));
  check_launch("score");
}

}  // namespace troupe
