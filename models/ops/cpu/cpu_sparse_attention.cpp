// Attention to the keys that a lightning indexer chooses: their pages are gathered, and the kernel
// of dense attention reads the gathered ones.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "models/ops/cpu/cpu_components.hpp"
#include "models/ops/cpu/kv_elements.hpp"
#include "models/ops/cpu/stored_element.hpp"

namespace troupe {
namespace {

/// Rotates the first `rotated` elements in halves (Su et al. 2021); `row` of rope_table.
void rotate_first(float* x, const float* row, std::int64_t rotated) {
  const std::int64_t half = rotated / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * row[i] - b * row[half + i];
    x[half + i] = b * row[i] + a * row[half + i];
  }
}

template <class Stored>
void store_index_key(const float* key, std::int64_t dim, const Tensor& cache, std::int32_t slot,
                     std::int64_t block_size) {
  auto* stored =
      static_cast<Stored*>(cache.data()) + slot / block_size * dim * block_size + slot % block_size;
  for (std::int64_t i = 0; i < dim; ++i) narrow(key[i], stored[i * block_size]);
}

/// The positions of the `top_k` largest scores, the earlier one of equals, ascending.
void choose(std::span<const float> scores, std::int64_t top_k, std::vector<std::int32_t>& chosen) {
  chosen.resize(scores.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  const auto is_better = [&](std::int32_t a, std::int32_t b) {
    const float x = scores[static_cast<std::size_t>(a)], y = scores[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::nth_element(chosen.begin(), chosen.begin() + top_k, chosen.end(), is_better);
  chosen.resize(static_cast<std::size_t>(top_k));
  std::ranges::sort(chosen);
}

/// Copies latent keys at `positions` to pages that follow each other.
template <class Element>
void gather_keys(const Element* keys, const KvRowLayout& layout, const std::int32_t* blocks,
                 std::int64_t block_size, std::span<const std::int32_t> positions,
                 Element* gathered) {
  const std::int64_t page = layout.page_elements(block_size);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto to = static_cast<std::int64_t>(i), from = std::int64_t{positions[i]};
    const Element* const old_page = keys + blocks[from / block_size] * page;
    Element* const new_page = gathered + to / block_size * page;
    for (std::int64_t d = 0; d < layout.row_elements; ++d) {
      new_page[layout.key_place(d, to % block_size, block_size)] =
          old_page[layout.key_place(d, from % block_size, block_size)];
    }
  }
}

/// The rows of a span that see no more than `top_k` keys, which are its first.
std::int32_t dense_rows(const SequenceSpan& span, std::int64_t top_k) {
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(top_k - span.first_position, 0, span.rows));
}

}  // namespace

void CpuAttentionOps::do_index_rope_store(const IndexQueries& index, const Tensor& key,
                                          const Tensor& rope, const AttentionShape& shape,
                                          const AttentionBatch& batch, const KvLayer& cache) {
  const std::int64_t dim = shape.index.dim, rotated = shape.head_dim - shape.latent;
  context_.for_rows(
      key[0], 2 * row_bytes(index.query), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t token = begin; token < end; ++token) {
          const float* row = rope.as<float>() + batch.positions.as<std::int32_t>()[token] * rotated;
          float* query = index.query.as<float>() + token * shape.index.heads * dim;
          for (std::int64_t head = 0; head < shape.index.heads; ++head) {
            rotate_first(query + head * dim, row, rotated);
          }
          float* own = key.as<float>() + token * dim;
          rotate_first(own, row, rotated);
          const std::int32_t slot = batch.kv_slots.as<std::int32_t>()[token];
          if (cache.index_keys.dtype() == DType::f32) {
            store_index_key<float>(own, dim, cache.index_keys, slot, batch.block_size);
          } else {
            store_index_key<std::uint16_t>(own, dim, cache.index_keys, slot, batch.block_size);
          }
        }
      });
}

void CpuAttentionOps::attend_chosen(const SparseRow& row, SparseScratch& scratch) {
  const AttentionShape& shape = row.attention.shape;
  const std::int64_t top_k = shape.index.top_k, block_size = row.attention.block_size;
  const std::int64_t pages = (top_k + block_size - 1) / block_size;
  scratch.scores.resize(static_cast<std::size_t>(row.index.keys_seen));
  IndexScoresJob scores = row.index;
  scores.scores = scratch.scores.data();
  context_.kernels().index_scores(scores);
  choose(scratch.scores, top_k, scratch.chosen);
  const KvRowLayout& layout = row.attention.layout;
  const Shape wanted{pages, 1, layout.row_elements, block_size};
  // A draft model may have other sizes.
  if (scratch.gathered->shape() != wanted || scratch.gathered->dtype() != layout.stored) {
    scratch.gathered = HostTensor(layout.stored, wanted);
    scratch.pages.resize(static_cast<std::size_t>(pages));
    std::iota(scratch.pages.begin(), scratch.pages.end(), 0);
  }
  with_elements(layout.stored, [&](auto element) {
    using Element = decltype(element);
    gather_keys(static_cast<const Element*>(row.attention.keys), layout, row.attention.blocks,
                block_size, scratch.chosen, static_cast<Element*>(scratch.gathered->data()));
  });
  AttentionJob job = row.attention;
  job.keys = scratch.gathered->data();
  job.blocks = scratch.pages.data();
  job.rows = 1;
  job.first_position = top_k - 1;
  for (job.first_head = 0; job.first_head < shape.heads; job.first_head += job.heads) {
    context_.kernels().attention(job);
  }
}

void CpuAttentionOps::do_attend_sparse(const Tensor& q, const IndexQueries& index,
                                       const AttentionShape& shape, const AttentionBatch& batch,
                                       const KvLayer& cache, const Tensor& out) {
  const std::int64_t top_k = shape.index.top_k;
  std::vector<SequenceSpan> dense;
  std::vector<SparseRow> rows;
  for (const SequenceSpan& span : batch.sequences) {
    SequenceSpan first = span;
    first.rows = dense_rows(span, top_k);
    if (first.rows > 0) dense.push_back(first);
    for (std::int32_t i = first.rows; i < span.rows; ++i) {
      const std::int64_t token = span.first_row + i;
      SparseRow& row = rows.emplace_back();
      const std::int32_t* blocks = batch.block_tables.as<std::int32_t>() + span.block_offset;
      row.attention.q = q.as<float>() + token * shape.heads * shape.head_dim;
      row.attention.out = out.as<float>() + token * shape.heads * shape.value_dim();
      row.attention.keys = cache.keys.data();
      row.attention.layout = row.attention.value_layout = shape.row_layout(cache.keys.dtype());
      row.attention.blocks = blocks;
      row.attention.block_size = batch.block_size;
      row.attention.heads = heads_of_tile(shape.heads);
      row.attention.shape = shape;
      row.index = {.query = index.query.as<float>() + token * shape.index.heads * shape.index.dim,
                   .weights = index.weights.as<float>() + token * shape.index.heads,
                   .heads = shape.index.heads,
                   .dim = shape.index.dim,
                   .keys = cache.index_keys.data(),
                   .dtype = cache.index_keys.dtype(),
                   .blocks = blocks,
                   .block_size = batch.block_size,
                   .keys_seen = span.first_position + i + 1};
    }
  }
  if (!dense.empty()) {
    AttentionBatch part = batch;
    part.sequences = dense;
    do_attend(q, shape, part, cache, out);
  }
  sparse_scratch_.resize(static_cast<std::size_t>(context_.pool().size()));
  context_.for_rows(static_cast<std::int64_t>(rows.size()), parallel_bytes,
                    [&](std::int64_t begin, std::int64_t end, int member) {
                      for (std::int64_t i = begin; i < end; ++i) {
                        SparseRow& row = rows[static_cast<std::size_t>(i)];
                        row.attention.scratch = context_.scratch(member);
                        SparseScratch& scratch = sparse_scratch_[static_cast<std::size_t>(member)];
                        attend_chosen(row, scratch);
                      }
                    });
}

}  // namespace troupe
