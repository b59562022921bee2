#include <algorithm>
#include <atomic>
#include <cmath>

#include "models/ops/attention_limits.hpp"
#include "models/ops/cpu/cpu_components.hpp"

namespace troupe {

Result<std::pair<DeviceTensor, DeviceTensor>> CpuAttentionOps::allocate_kv(
    std::int64_t blocks, std::int32_t block_size, const AttentionShape& shape, DType dtype) {
  TROUPE_CHECK(check_cpu_attention(shape, block_size, dtype));
  try {
    context_.reserve_scratch(attention_scratch_floats(shape.head_dim));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::resource_exhausted, "no memory for attention over heads of {}",
                shape.head_dim);
  }
  const DType of_keys = shape.key_dtype(dtype), of_values = shape.value_dtype(dtype);
  const auto row = [&](DType stored) { return shape.row_layout(stored).row_elements; };
  TROUPE_TRY(DeviceTensor keys,
             allocate_on_cpu(of_keys, Shape{blocks, shape.kv_heads, row(of_keys), block_size}));
  if (shape.latent != 0) return std::pair(std::move(keys), DeviceTensor());
  TROUPE_TRY(DeviceTensor values,
             allocate_on_cpu(of_values, Shape{blocks, shape.kv_heads, block_size, row(of_values)}));
  return std::pair(std::move(keys), std::move(values));
}

void CpuAttentionOps::do_norm_rope_store(const Tensor& qkv, const Tensor& q_norm,
                                         const Tensor& k_norm, float eps, const Tensor& rope,
                                         const AttentionShape& shape, const AttentionBatch& batch,
                                         const KvLayer& cache, const Tensor& q_out) {
  NormRopeStoreJob job;
  job.qkv = qkv.as<float>();
  job.q_norm = q_norm.empty() ? nullptr : q_norm.as<float>();
  job.k_norm = k_norm.empty() ? nullptr : k_norm.as<float>();
  job.eps = eps;
  job.rope = rope.as<float>();
  job.shape = shape;
  job.positions = batch.positions.as<std::int32_t>();
  job.kv_slots = batch.kv_slots.as<std::int32_t>();
  job.block_size = batch.block_size;
  job.keys = cache.keys.data();
  job.values = cache.values.data();
  job.layout = shape.row_layout(cache.keys.dtype());
  job.value_layout = shape.row_layout(cache.values.dtype());
  job.q_out = q_out.as<float>();
  const std::int64_t tokens = batch.positions[0];
  context_.for_rows(tokens, 4 * row_bytes(qkv),
                    [&](std::int64_t begin, std::int64_t end, int member) {
                      NormRopeStoreJob part = job;
                      part.scratch = context_.scratch(member);
                      part.begin = begin;
                      part.end = end;
                      context_.kernels().rows.norm_rope_store(part);
                    });
}

void CpuAttentionOps::do_square_sums(const Tensor& qkv, const AttentionShape& shape,
                                     const Tensor& sums) {
  const std::int64_t heads = sums[1], dim = shape.head_dim;
  context_.for_rows(qkv[0], row_bytes(qkv), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t token = begin; token < end; ++token) {
      for (std::int64_t head = 0; head < heads; ++head) {
        const float* from = qkv.as<float>() + token * qkv[1] + head * dim;
        sums.as<float>()[token * heads + head] = context_.kernels().rows.dot(from, from, dim);
      }
    }
  });
}

void CpuAttentionOps::do_norm_projections(const Tensor& qkv, const AttentionShape& shape,
                                          const ProjectionNorm& norm) {
  const std::int64_t tokens = qkv[0], dim = shape.head_dim, heads = norm.square_sums[1];
  // The inverse root of the mean over the local heads [first, first + count) of every `step`-th
  // rank.
  const auto inverse = [&](std::int64_t token, std::int64_t first, std::int64_t count,
                           std::int64_t step) {
    float sum = 0.0F;
    for (std::int64_t rank = 0; rank < norm.ranks; rank += step) {
      const float* of_rank = norm.square_sums.as<float>() + (rank * tokens + token) * heads;
      for (std::int64_t head = first; head < first + count; ++head) sum += of_rank[head];
    }
    const auto elements = static_cast<float>(norm.ranks / step * count * dim);
    return 1.0F / std::sqrt(sum / elements + norm.eps);
  };
  const std::int64_t q = shape.heads * dim, k = shape.kv_heads * dim;
  context_.for_rows(tokens, 2 * row_bytes(qkv), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t token = begin; token < end; ++token) {
      float* row = qkv.as<float>() + token * qkv[1];
      const auto& rows = context_.kernels().rows;
      rows.scale_row(row, inverse(token, 0, shape.heads, 1), norm.q_weight.as<float>(), q, row);
      rows.scale_row(row + q, inverse(token, shape.heads, shape.kv_heads, norm.kv_copies),
                     norm.k_weight.as<float>(), k, row + q);
    }
  });
}

void CpuAttentionOps::do_latent_rope_store(const Columns& rotated_q, const Columns& kv,
                                           const Tensor& norm, float eps, const Tensor& rope,
                                           const AttentionShape& shape, const AttentionBatch& batch,
                                           const KvLayer& cache, const Tensor& q_out) {
  LatentRopeStoreJob job;
  job.rotated_q = static_cast<const float*>(rotated_q.data());
  job.q_stride = rotated_q.stride();
  job.kv = static_cast<const float*>(kv.data());
  job.kv_stride = kv.stride();
  job.norm = norm.as<float>();
  job.eps = eps;
  job.rope = rope.as<float>();
  job.shape = shape;
  job.positions = batch.positions.as<std::int32_t>();
  job.kv_slots = batch.kv_slots.as<std::int32_t>();
  job.block_size = batch.block_size;
  job.keys = cache.keys.data();
  job.layout = shape.row_layout(cache.keys.dtype());
  job.q_out = q_out.as<float>();
  context_.for_rows(batch.positions[0], row_bytes(q_out) + 4 * row_bytes(kv.matrix),
                    [&](std::int64_t begin, std::int64_t end, int member) {
                      LatentRopeStoreJob part = job;
                      part.scratch = context_.scratch(member);
                      part.begin = begin;
                      part.end = end;
                      context_.kernels().rows.latent_rope_store(part);
                    });
}

std::int64_t heads_of_tile(std::int64_t group) {
  std::int64_t heads = std::min(group, attention_tile_rows);
  while (group % heads != 0) --heads;
  return heads;
}

void CpuAttentionOps::do_attend(const Tensor& q, const AttentionShape& shape,
                                const AttentionBatch& batch, const KvLayer& cache,
                                const Tensor& out) {
  AttentionJob job;
  job.keys = cache.keys.data();
  job.values = cache.values.data();
  job.layout = shape.row_layout(cache.keys.dtype());
  job.value_layout = shape.latent > 0 ? job.layout : shape.row_layout(cache.values.dtype());
  job.block_size = batch.block_size;
  job.shape = shape;
  job.sinks = shape.sinks.empty() ? nullptr : shape.sinks.as<float>();
  job.heads = heads_of_tile(shape.heads / shape.kv_heads);
  const std::int64_t parts = shape.heads / job.heads;
  const std::int64_t tile_rows = attention_tile_rows / job.heads;
  const auto tiles_of = [&](const SequenceSpan& span) {
    return (span.rows + tile_rows - 1) / tile_rows;
  };
  std::atomic<std::int64_t> next{0};
  // Tiles are handed out one by one in a fixed numbering (sequence, heads, tile from the last,
  // which is the longest); each member walks the spans along with its rising numbers. It fetches
  // one tile ahead, to prefetch that one's first keys while it works.
  const auto work = [&](int member) {
    std::int64_t first = 0;  // number of the current span's first tile
    std::size_t s = 0;
    const auto take = [&](AttentionJob& part) {
      const std::int64_t number = next.fetch_add(1, std::memory_order_relaxed);
      while (s < batch.sequences.size() && number >= first + tiles_of(batch.sequences[s]) * parts) {
        first += tiles_of(batch.sequences[s]) * parts;
        ++s;
      }
      if (s == batch.sequences.size()) return false;
      const SequenceSpan& span = batch.sequences[s];
      const std::int64_t tiles = tiles_of(span);
      const std::int64_t tile = tiles - 1 - (number - first) % tiles;
      const std::int64_t begin = tile * tile_rows;
      const std::int64_t row = span.first_row + begin;
      part.first_head = (number - first) / tiles * job.heads;
      part.q = q.as<float>() + row * shape.heads * shape.head_dim;
      part.out = out.as<float>() + row * shape.heads * shape.value_dim();
      part.rows = std::min<std::int64_t>(tile_rows, span.rows - begin);
      part.first_position = span.first_position + begin;
      part.blocks = batch.block_tables.as<std::int32_t>() + span.block_offset;
      return true;
    };
    AttentionJob current = job, following = job;
    current.scratch = following.scratch = context_.scratch(member);
    for (bool more = take(current); more; std::swap(current, following)) {
      more = take(following);
      current.following = more ? &following : nullptr;
      context_.kernels().attention(current);
    }
  };
  std::int64_t positions = 0;
  for (const SequenceSpan& span : batch.sequences) {
    positions += std::int64_t{span.rows} * (span.first_position + span.rows);
  }
  if (context_.pool().size() == 1 || positions * shape.heads * shape.head_dim < parallel_bytes) {
    work(0);
  } else {
    context_.pool().run(work);
  }
}

}  // namespace troupe
