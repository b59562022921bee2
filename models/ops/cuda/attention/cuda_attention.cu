// Attention over the paged cache: by which kernels, and those for any head size and both types.
#include "models/ops/cuda/attention/cuda_attention_ops.hpp"
#include "models/ops/cuda/attention/kv_code.cuh"
#include "parallel/device/cuda/device_math.cuh"
#include "parallel/device/cuda/launch.cuh"

namespace troupe {
namespace cuda {
namespace {

constexpr int warp = 32;

constexpr int attention_threads = 128;
constexpr int attention_chunk = 128;  // positions per step of the online softmax
constexpr int max_head_dim = 576;
constexpr int max_elements = (max_head_dim + attention_threads - 1) / attention_threads;

struct AttentionPass {
  const SequenceSpan* spans;  // of the whole pass
  int sequences, first_row;
  const std::int32_t* tables;
  int heads, kv_heads, head_dim, value_dim, block_size;
  std::int64_t window;
  float scale, soft_cap;  // no cap: 0
  const float* sinks;     // of the heads, or null
};

/// The span of a row of the pass: spans are in row order.
__device__ SequenceSpan span_of(const AttentionPass& pass, int row) {
  int low = 0, high = pass.sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (pass.spans[middle].first_row <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return pass.spans[low];
}

/// The keys or the values of a cache, row after row of a page; `Other`: of values, or of keys.
template <class Stored, class Other>
struct CacheRows {
  const Stored* elements;
  int kv_heads, block_size, head_dim;

  /// Where the row of a KV head begins.
  __device__ std::int64_t begin(std::int64_t block, int kv_head, std::int64_t offset) const {
    return ((block * kv_heads + kv_head) * block_size + offset) * head_dim;
  }
  __device__ float scale(std::int64_t /*block*/, int /*kv_head*/, std::int64_t /*offset*/) const {
    return 1.0F;
  }
  __device__ float number(std::int64_t begin, int i) const { return load(elements + begin + i); }
};
template <class Code, class Other>
  requires is_code_type<Code>
struct CacheRows<Code, Other> {
  const std::uint8_t* elements;
  int kv_heads, block_size, head_dim;

  __device__ CodedPages pages() const {
    return {kv_heads, block_size, head_dim / Code::in_byte, head_dim / Other::in_byte};
  }
  __device__ std::int64_t begin(std::int64_t block, int kv_head, std::int64_t offset) const {
    return pages().page(block, kv_head) + pages().row(static_cast<int>(offset));
  }
  __device__ float scale(std::int64_t block, int kv_head, std::int64_t offset) const {
    const std::int64_t at = pages().page(block, kv_head) + pages().scale(static_cast<int>(offset));
    return __half2float(*reinterpret_cast<const __half*>(elements + at));
  }
  __device__ float number(std::int64_t begin, int i) const {
    return number_of<Code>(elements + begin, i);
  }
};

/// A block per query row and head: chunks of positions, scores by warps (a position each), then the
/// output's elements by threads. Bytes: each row reads its whole context once per head.
template <class T, class Keys, class Values>
__global__ void attend(const T* q, CacheRows<Keys, Values> keys, CacheRows<Values, Keys> values,
                       AttentionPass pass, T* out) {
  __shared__ float query[max_head_dim];
  __shared__ float scores[attention_chunk];
  __shared__ std::int64_t key_rows[attention_chunk], value_rows[attention_chunk];
  __shared__ float key_scales[attention_chunk], value_scales[attention_chunk];
  const int row = blockIdx.x, head = blockIdx.y, thread = threadIdx.x;
  const int kv_head = head / (pass.heads / pass.kv_heads);
  const int pass_row = pass.first_row + row;
  const SequenceSpan span = span_of(pass, pass_row);
  const std::int64_t position = span.first_position + (pass_row - span.first_row);
  const std::int64_t at = std::int64_t{row} * pass.heads + head;
  for (int d = thread; d < pass.head_dim; d += attention_threads) {
    query[d] = load(q + at * pass.head_dim + d) * pass.scale;
  }
  const std::int64_t oldest =
      pass.window == 0 || position < pass.window ? 0 : position - pass.window + 1;
  float sums[max_elements] = {};
  float maximum = -INFINITY, total = 0.0F;
  for (std::int64_t first = oldest / attention_chunk * attention_chunk; first <= position;
       first += attention_chunk) {
    __syncthreads();  // the last chunk's scores are read
    const std::int64_t own = first + thread;
    if (own >= oldest && own <= position) {
      const std::int64_t block = pass.tables[span.block_offset + own / pass.block_size];
      const std::int64_t offset = own % pass.block_size;
      key_rows[thread] = keys.begin(block, kv_head, offset);
      value_rows[thread] = values.begin(block, kv_head, offset);
      key_scales[thread] = keys.scale(block, kv_head, offset);
      value_scales[thread] = values.scale(block, kv_head, offset);
    } else {
      key_rows[thread] = -1;
    }
    __syncthreads();
    for (int p = thread / warp; p < attention_chunk; p += attention_threads / warp) {
      if (key_rows[p] < 0) {
        if (thread % warp == 0) scores[p] = -INFINITY;
        continue;
      }
      float score = 0.0F;
      for (int d = thread % warp; d < pass.head_dim; d += warp) {
        score += query[d] * keys.number(key_rows[p], d);
      }
      score = warp_sum(score) * key_scales[p];
      if (pass.soft_cap > 0.0F) score = pass.soft_cap * tanhf(score / pass.soft_cap);
      if (thread % warp == 0) scores[p] = score;
    }
    __syncthreads();
    float chunk_maximum = maximum;
    for (int p = thread % warp; p < attention_chunk; p += warp) {
      chunk_maximum = fmaxf(chunk_maximum, scores[p]);
    }
    chunk_maximum = warp_max(chunk_maximum);
    const float shrink = expf(maximum - chunk_maximum);
    maximum = chunk_maximum;
    total *= shrink;
    for (float& sum : sums) sum *= shrink;
    for (int p = 0; p < attention_chunk; ++p) {
      if (key_rows[p] < 0) continue;
      const float term = expf(scores[p] - maximum);
      total += term;
#pragma unroll
      for (int e = 0; e < max_elements; ++e) {
        const int d = thread + e * attention_threads;
        if (d < pass.value_dim) {
          sums[e] += term * value_scales[p] * values.number(value_rows[p], d);
        }
      }
    }
  }
  if (pass.sinks != nullptr) total += expf(pass.sinks[head] - maximum);
#pragma unroll
  for (int e = 0; e < max_elements; ++e) {
    const int d = thread + e * attention_threads;
    if (d < pass.value_dim) store(out + at * pass.value_dim + d, sums[e] / total);
  }
}

}  // namespace
}  // namespace cuda

using namespace cuda;

CudaAttentionOps::AttentionKernel CudaAttentionOps::attention_kernel(
    const AttentionShape& shape, DType stored, DType activation,
    const AttentionBatch& batch) const {
  using enum AttentionKernel;
  if (deterministic_) {
    const bool fits =
        InvariantAttention::supports(shape, stored, activation) && InvariantAttention::suits(batch);
    return fits ? invariant : any_shape;
  }
  if (dtype_ != DType::bf16) return any_shape;
  if (is_code(stored)) {
    const bool fits = CodedAttention::supports(shape, stored, activation) &&
                      batch.block_size % attention_page == 0;
    return fits ? coded : any_shape;
  }
  if (DecodeAttention::supports(shape, stored, activation) && DecodeAttention::suits(batch)) {
    return decode;
  }
  if (FlashInferMla::supports(shape, stored, activation)) return flashinfer_mla;
  return FlashAttention::supports(shape, stored, activation) ? flashinfer : any_shape;
}

PlannedAttention CudaAttentionOps::plan(const AttentionShape& shape, const AttentionBatch& batch) {
  if (batch.sequences.empty()) return {};
  if (shape.index.top_k > 0) {
    check(plan_sparse(shape, batch));
    return {};
  }
  const auto checked = [&](const Result<PlannedAttention>& planned) {
    if (planned.ok()) return *planned;
    check(Result<void>(planned.error()));
    return PlannedAttention();
  };
  switch (attention_kernel(shape, codes_.value_or(dtype_), dtype_, batch)) {
    case AttentionKernel::invariant:
      return checked(invariant_attention_->plan(shape, batch, stream()));
    case AttentionKernel::decode:
      return checked(decode_attention_->plan(shape, batch, stream()));
    case AttentionKernel::flashinfer_mla:
      check(latent_attention_->plan(shape, batch, stream()));
      break;
    case AttentionKernel::flashinfer:
      check(flash_attention_->plan(shape, batch, stream()));
      break;
    case AttentionKernel::coded:
      check(coded_attention_->plan(shape, batch, stream()));
      break;
    case AttentionKernel::any_shape:
      break;
  }
  return {};
}

void CudaAttentionOps::do_attend(const Tensor& q, const AttentionShape& shape,
                                 const AttentionBatch& batch, const KvLayer& cache,
                                 const Tensor& out) {
  if (q.empty()) return;
  switch (attention_kernel(shape, cache.keys.dtype(), q.dtype(), batch)) {
    case AttentionKernel::invariant:
      return check(invariant_attention_->attend(q, shape, batch, cache, out, stream()));
    case AttentionKernel::decode:
      return check(decode_attention_->attend(q, shape, batch, cache, out, stream()));
    case AttentionKernel::flashinfer_mla:
      return check(latent_attention_->attend(q, shape, batch, cache, out, stream()));
    case AttentionKernel::flashinfer:
      return check(flash_attention_->attend(q, shape, batch, cache, out, stream()));
    case AttentionKernel::coded:
      check(coded_attention_->attend(q, shape, batch, cache, out, stream()));
      for (const SequenceSpan& span : coded_attention_->left(batch)) {
        AttentionBatch own = batch;
        own.first_row += span.first_row;
        attention_of_any_shape(q.rows(span.first_row, span.rows), shape, own, cache,
                               out.rows(span.first_row, span.rows));
      }
      return;
    case AttentionKernel::any_shape:
      return attention_of_any_shape(q, shape, batch, cache, out);
  }
}

void CudaAttentionOps::attention_of_any_shape(const Tensor& q, const AttentionShape& shape,
                                              const AttentionBatch& batch, const KvLayer& cache,
                                              const Tensor& out) {
  const AttentionPass pass{static_cast<const SequenceSpan*>(batch.spans.data()),
                           static_cast<int>(batch.spans.elements() / numbers_of_span),
                           static_cast<int>(batch.first_row),
                           batch.block_tables.as<std::int32_t>(),
                           static_cast<int>(shape.heads),
                           static_cast<int>(shape.kv_heads),
                           static_cast<int>(shape.head_dim),
                           static_cast<int>(shape.value_dim()),
                           batch.block_size,
                           shape.window,
                           shape.scale,
                           shape.soft_cap,
                           shape.sinks.empty() ? nullptr : shape.sinks.as<float>()};
  const Tensor& values = shape.latent > 0 ? cache.keys : cache.values;
  const dim3 grid(static_cast<unsigned>(q[0]), static_cast<unsigned>(shape.heads));
  const auto launch = [&](auto* type, auto* keys_in, auto* values_in) {
    using T = element<decltype(type)>;
    using Keys = element<decltype(keys_in)>;
    using Values = element<decltype(values_in)>;
    const auto rows_of = [&]<class Rows>(const Tensor& tensor, Rows /*type*/) {
      return Rows{static_cast<decltype(Rows::elements)>(tensor.data()), pass.kv_heads,
                  pass.block_size, pass.head_dim};
    };
    cuda::attend<<<grid, attention_threads, 0, stream()>>>(
        static_cast<const T*>(q.data()), rows_of(cache.keys, CacheRows<Keys, Values>{}),
        rows_of(values, CacheRows<Values, Keys>{}), pass, static_cast<T*>(out.data()));
  };
  with_type(q.dtype(), [&](auto* type) {
    if (is_code(cache.keys.dtype())) {
      with_codes(cache.keys.dtype(), values.dtype(),
                 [&](auto* of_keys, auto* of_values) { launch(type, of_keys, of_values); });
    } else {
      with_type(cache.keys.dtype(), [&](auto* stored) { launch(type, stored, stored); });
    }
  });
  check_launch("attention");
}

}  // namespace troupe
