// The scores of a row's lightning indexer, for one instruction set (vec.hpp).
//
// A score is a chain of FMAs over the index heads, in order, of relu(q . k), each of which is one
// chain of FMAs over the head's elements. It depends on the row and the key alone.
#pragma once

#include "models/ops/cpu/attention_gemms.hpp"
#include "models/ops/cpu/kernels.hpp"
#include "models/ops/cpu/vec.hpp"

namespace troupe::TROUPE_ISA {

template <class Stored>
void score_keys(const IndexScoresJob& job) {
  float dots[score_rows * attention_chunk];
  for (std::int64_t first = 0; first < job.keys_seen; first += attention_chunk) {
    const std::int64_t seen =
        job.keys_seen - first < attention_chunk ? job.keys_seen - first : attention_chunk;
    const int groups = static_cast<int>((seen + 15) / 16);
    const Stored* keys[groups_per_chunk] = {};
    for (int g = 0; g < groups; ++g) {
      const std::int64_t position = first + 16 * g;
      keys[g] = static_cast<const Stored*>(job.keys) +
                job.blocks[position / job.block_size] * job.dim * job.block_size +
                position % job.block_size;
    }
    F16 sums[groups_per_chunk];
    for (F16& sum : sums) sum = zero();
    for (std::int64_t head = 0; head < job.heads; head += score_rows) {
      const std::int64_t left = job.heads - head;
      const int count = static_cast<int>(left < score_rows ? left : score_rows);
      score_rows_of<Stored, false>(count, job.query + head * job.dim,
                                   {job.dim, job.dim, job.block_size, false}, keys, nullptr,
                                   nothing, groups, dots);
      for (int r = 0; r < count; ++r) {
        const F16 weight = broadcast(job.weights[head + r]);
        for (int g = 0; g < groups; ++g) {
          sums[g] = fma(weight, max(load(dots + r * attention_chunk + 16 * g), zero()), sums[g]);
        }
      }
    }
    for (int g = 0; g < groups; ++g) {
      store_up_to(job.scores + first + 16 * g, sums[g], seen - 16 * g);
    }
  }
}

void index_scores(const IndexScoresJob& job) {
  if (job.dtype == DType::f32) {
    score_keys<float>(job);
  } else {
    score_keys<std::uint16_t>(job);
  }
}

}  // namespace troupe::TROUPE_ISA
