// LogitsEditor of models/sampler for the parts of a row in shared memory: the same additions and
// multiplications in the same order.
#pragma once

#include "models/ops/cuda/sampling/row_parts.cuh"
#include "models/ops/ops.hpp"

namespace troupe::cuda {

/// Marks of a part's tokens, sixteen bits each: a bit for being in the prompt, or allowed; below
/// it, the count in the output.
class TokenMarks {
 public:
  static constexpr std::uint32_t flag = 0x8000;
  static constexpr int of_token = sizeof(std::uint16_t);

  __device__ TokenMarks(void* memory, int count)
      : words_(static_cast<std::uint32_t*>(memory)), count_(count) {
    for (int i = threadIdx.x; i < (count_ + 1) / 2; i += part_threads) words_[i] = 0;
  }
  __device__ void set_flag(int at) { atomicOr(&words_[at / 2], flag << (at % 2 * 16)); }
  __device__ void count(int at) { atomicAdd(&words_[at / 2], 1U << (at % 2 * 16)); }
  __device__ std::uint32_t at(int i) const { return words_[i / 2] >> (i % 2 * 16) & 0xffff; }
  __device__ void clear_flag(int at) { atomicAnd(&words_[at / 2], ~(flag << (at % 2 * 16))); }

 private:
  std::uint32_t* words_;
  int count_;
};

__device__ __forceinline__ float penalized(float logit, std::uint32_t mark, const RowEdits& edits) {
  if (mark == 0) return logit;
  logit = logit > 0.0F ? __fdiv_rn(logit, edits.repetition_penalty)
                       : __fmul_rn(logit, edits.repetition_penalty);
  const std::uint32_t count = mark & (TokenMarks::flag - 1);
  if (count == 0) return logit;
  logit = __fadd_rn(logit, -__fmul_rn(edits.frequency_penalty, static_cast<float>(count)));
  return __fadd_rn(logit, -edits.presence_penalty);
}

/// Edits this part's values. `memory` has room for a mark of each.
__device__ inline void edit(RowPart& part, const RowEdits& edits, const std::int32_t* tokens,
                            void* memory) {
  TokenMarks marks(memory, part.count());
  // Calls visit(its index in the part, i) for each token of a list that is in this part.
  const auto for_tokens = [&](const std::int32_t* ids, int count, int stride, auto&& visit) {
    for (int i = threadIdx.x; i < count; i += part_threads) {
      const std::int64_t at = std::int64_t{ids[i * stride]} - part.begin();
      if (at >= 0 && at < part.count()) visit(static_cast<int>(at), i);
    }
    __syncthreads();
  };
  __syncthreads();
  const std::int32_t* next = tokens + edits.first;
  if (edits.allowed > 0) {
    for_tokens(next, edits.allowed, 1, [&](int at, int) { marks.set_flag(at); });
    part.for_each<true>([&](float& value, int i) {
      if (i >= part.count()) return;
      if (marks.at(i) == 0)
        value = -INFINITY;
      else
        marks.clear_flag(i);
    });
    __syncthreads();
  }
  next += edits.allowed;
  for_tokens(next, edits.masked, 1, [&](int at, int) { part.values()[at] = -INFINITY; });
  next += edits.masked;
  for_tokens(next, edits.biased, 2, [&](int at, int i) {
    part.values()[at] = __fadd_rn(part.values()[at], __int_as_float(next[2 * i + 1]));
  });
  next = tokens + edits.history;
  for_tokens(next, edits.prompt, 1, [&](int at, int) { marks.set_flag(at); });
  next += edits.prompt;
  for_tokens(next, edits.output, 1, [&](int at, int) { marks.count(at); });
  if (edits.prompt + edits.output == 0) return;
  part.for_each<true>([&](float& value, int i) {
    if (i < part.count()) value = penalized(value, marks.at(i), edits);
  });
  __syncthreads();
}

}  // namespace troupe::cuda
