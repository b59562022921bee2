// Greedy choice and draws by temperature, bit for bit as models/sampler/sampler.cpp makes them: the
// same additions and multiplications in the same order, none contracted.
#include "models/ops/cuda/cuda_ops_class.hpp"
#include "models/ops/cuda/device_math.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int threads = 256;
constexpr int block = 64;  // weights that are summed together
constexpr int lanes = 16;  // sums within a block
constexpr float greedy_below = 1e-5F;
constexpr std::int64_t most_tokens = (200 << 10) / sizeof(double) * block;  // of a vocabulary

/// e^x for x <= 0: sampler.cpp's exp_negative.
__device__ float exp_negative(float x) {
  const float shifted = __fadd_rn(__fmul_rn(x, 1.44269504F), 12582912.0F);
  const float n = __fadd_rn(shifted, -12582912.0F);
  const float r =
      __fadd_rn(__fadd_rn(x, -__fmul_rn(n, 0.693359375F)), -__fmul_rn(n, -2.12194440e-4F));
  constexpr float factors[] = {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F};
  float p = 1.0F / 5040;
  for (const float factor : factors) p = __fadd_rn(__fmul_rn(p, r), factor);
  const std::uint32_t bits = __float_as_uint(p) + (__float_as_uint(shifted) << 23);
  const std::int32_t magnitude = __float_as_int(x) & 0x7fffffff;
  return magnitude > __float_as_int(87.0F) ? 0.0F : __uint_as_float(bits);
}

/// Philox4x32-10 as in models/sampler/philox.hpp; the first two words, as a double in [0, 1).
__device__ double uniform(std::uint64_t seed, std::uint64_t position, std::uint32_t choice) {
  std::uint32_t c0 = static_cast<std::uint32_t>(position);
  std::uint32_t c1 = static_cast<std::uint32_t>(position >> 32), c2 = choice, c3 = 0;
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53U} * c0;
    const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * c2;
    c0 = static_cast<std::uint32_t>(second >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(second);
    c2 = static_cast<std::uint32_t>(first >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(first);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  const std::uint64_t wide = (std::uint64_t{c0} << 32 | c1) >> 11;
  return static_cast<double>(wide) * 0x1p-53;
}

struct Best {
  float value;
  std::int64_t id;
  bool finite;
};

__device__ Best better(Best a, Best b) {
  const bool first = a.value > b.value || (a.value == b.value && a.id <= b.id);
  return {first ? a.value : b.value, first ? a.id : b.id, a.finite && b.finite};
}

/// The largest logit of a row and the lowest id that has it; every thread gets it.
__device__ Best find_best(const float* logits, std::int64_t vocab) {
  __shared__ Best bests[threads / 32];
  Best best{-INFINITY, vocab, true};
  for (std::int64_t i = threadIdx.x; i < vocab; i += threads) {
    best = better(best, {logits[i], i, static_cast<bool>(isfinite(logits[i]))});
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    const Best other{__shfl_xor_sync(~0U, best.value, offset),
                     __shfl_xor_sync(~0U, best.id, offset),
                     __shfl_xor_sync(~0U, static_cast<int>(best.finite), offset) != 0};
    best = better(best, other);
  }
  if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best;
  __syncthreads();
  best = bests[0];
  for (int w = 1; w < threads / 32; ++w) best = better(best, bests[w]);
  return best;
}

/// The sum of a block of weights in sampler.cpp's order.
__device__ double sum_of_block(const float* logits, std::int64_t count, float maximum,
                               float scale) {
  double sums[lanes] = {}, sum = 0;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      const float x = __fmul_rn(__fadd_rn(logits[i + lane], -maximum), scale);
      sums[lane] = __dadd_rn(sums[lane], static_cast<double>(exp_negative(x)));
    }
  }
  for (; i < count; ++i) {
    const float x = __fmul_rn(__fadd_rn(logits[i], -maximum), scale);
    sum = __dadd_rn(sum, static_cast<double>(exp_negative(x)));
  }
  for (const double lane : sums) sum = __dadd_rn(sum, lane);
  return sum;
}

/// The index at which the running sum of the weights exceeds `point` of their sum; by one thread.
__device__ std::int64_t draw(const float* logits, std::int64_t vocab, float maximum, float scale,
                             const double* sums, double point) {
  const std::int64_t blocks = (vocab + block - 1) / block;
  double total = 0;
  for (std::int64_t b = 0; b < blocks; ++b) total = __dadd_rn(total, sums[b]);
  const double target = __dmul_rn(point, total);
  const auto weight = [&](std::int64_t i) {
    return exp_negative(__fmul_rn(__fadd_rn(logits[i], -maximum), scale));
  };
  double before = 0;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const double after = __dadd_rn(before, sums[b]);
    if (after <= target) {
      before = after;
      continue;
    }
    std::int64_t chosen = 0;
    for (std::int64_t i = b * block; i < min(vocab, (b + 1) * block); ++i) {
      const float own = weight(i);
      if (own == 0.0F) continue;
      chosen = i;  // the last with a weight, should rounding leave the sum just short
      before = __dadd_rn(before, static_cast<double>(own));
      if (before > target) break;
    }
    return chosen;
  }
  for (std::int64_t i = vocab; i-- > 0;) {  // rounding put the target at the very end
    if (weight(i) != 0.0F) return i;
  }
  return 0;
}

/// A block per row. Shared memory: the sums of blocks of weights, [vocab / 64, rounded up].
__global__ void sample_rows(const float* all_logits, std::int64_t vocab, const SampledRow* rows,
                            std::int32_t* ids) {
  extern __shared__ double sums[];
  const SampledRow row = rows[blockIdx.x];
  const float* logits = all_logits + row.row * vocab;
  const Best best = find_best(logits, vocab);
  if (!best.finite || row.temperature < greedy_below) {
    if (threadIdx.x == 0) ids[row.row] = best.finite ? static_cast<std::int32_t>(best.id) : -1;
    return;
  }
  const float scale = __fdiv_rn(1.0F, row.temperature);
  for (std::int64_t first = std::int64_t{threadIdx.x} * block; first < vocab;
       first += std::int64_t{threads} * block) {
    sums[first / block] =
        sum_of_block(logits + first, min(std::int64_t{block}, vocab - first), best.value, scale);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  const double point = uniform(row.seed, row.position, row.choice);
  ids[row.row] = static_cast<std::int32_t>(draw(logits, vocab, best.value, scale, sums, point));
}

}  // namespace
}  // namespace cuda

bool CudaOps::can_sample(const SampledRow& row, std::int64_t vocab) const {
  const bool cuts = row.top_k > 0 || row.top_p < 1.0F || row.min_p > 0.0F;
  return vocab <= cuda::most_tokens && (!cuts || row.temperature < cuda::greedy_below);
}

void CudaOps::sample(const Tensor& logits, std::span<const SampledRow> rows, const Tensor& ids) {
  if (rows.empty()) return;
  const std::int64_t vocab = logits[1];
  const std::int64_t shared =
      (vocab + cuda::block - 1) / cuda::block * std::int64_t{sizeof(double)};
  if (rows.size_bytes() > sampled_rows_->bytes()) {
    return check(fail(ErrorCode::invalid_argument, "sample: {} rows at once", rows.size()));
  }
  check(cudaMemcpyAsync(sampled_rows_->data(), rows.data(), rows.size_bytes(),
                        cudaMemcpyHostToDevice, stream()),
        "upload of rows to sample");
  if (shared > 40 << 10) {  // beside what is shared anyway
    check(cudaFuncSetAttribute(cuda::sample_rows, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared)),
          "sample");
  }
  cuda::sample_rows<<<static_cast<unsigned>(rows.size()), cuda::threads, shared, stream()>>>(
      logits.as<float>(), vocab, static_cast<const SampledRow*>(sampled_rows_->data()),
      ids.as<std::int32_t>());
  check_launch("sample");
}

}  // namespace troupe
