// What KV cache policies do to the cache: attention weights are summed, and entries removed.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "models/ops/cpu/cpu_components.hpp"
#include "models/ops/cpu/kv_elements.hpp"

namespace troupe {
namespace {

/// One KV head of one sequence's cache in a layer. `Element` is of the size of what is stored.
template <class Element>
class HeadEntries {
 public:
  /// `turned` has room for a key.
  HeadEntries(const KvCompaction& compaction, const CompactedSequence& sequence,
              const AttentionShape& shape, const KvLayer& cache, std::int64_t head,
              const RowKernels& rows, float* turned)
      : rows_(rows),
        turned_(turned),
        layout_(shape.row_layout(cache.keys.dtype())),
        value_layout_(shape.row_layout(cache.values.dtype())),
        blocks_(compaction.block_tables.as<std::int32_t>() + sequence.block_offset),
        block_size_(compaction.block_size),
        heads_(shape.kv_heads),
        head_(head),
        latent_(shape.latent),
        keys_(static_cast<Element*>(cache.keys.data())),
        values_(static_cast<Element*>(cache.values.data())),
        weights_(static_cast<float*>(cache.weights.data())) {}

  float weight(std::int64_t entry) const { return *weight_of(entry); }

  /// Moves an entry's key, value and weight to an earlier entry, and turns the key back by as many
  /// positions if `rope` is there, [positions, dim - latent] of rope_table.
  void move(std::int64_t from, std::int64_t to, const float* rope) const {
    const std::int64_t old_offset = from % block_size_, offset = to % block_size_;
    copy(keys_, layout_, from, to, [&](std::int64_t i, bool is_new) {
      return layout_.key_place(i, is_new ? offset : old_offset, block_size_);
    });
    if (rope != nullptr) turn_back(to, rope + (from - to) * (layout_.head_dim - latent_));
    if (values_ != nullptr) {
      copy(values_, value_layout_, from, to, [&](std::int64_t i, bool is_new) {
        return value_layout_.value_place(i, is_new ? offset : old_offset, block_size_);
      });
    }
    if (weights_ != nullptr) *weight_of(to) = weight(from);
  }

 private:
  std::int64_t page(std::int64_t entry) const {
    return blocks_[entry / block_size_] * heads_ + head_;
  }
  Element* page_of(Element* pages, const KvRowLayout& layout, std::int64_t entry) const {
    return pages + page(entry) * layout.page_elements(block_size_);
  }
  template <class PlaceOf>
  void copy(Element* pages, const KvRowLayout& layout, std::int64_t from, std::int64_t to,
            const PlaceOf& place_of) const {
    const Element* const old_page = page_of(pages, layout, from);
    Element* const new_page = page_of(pages, layout, to);
    for (std::int64_t i = 0; i < layout.row_elements; ++i) {
      new_page[place_of(i, true)] = old_page[place_of(i, false)];
    }
  }
  float* weight_of(std::int64_t entry) const {
    return weights_ + page(entry) * block_size_ + entry % block_size_;
  }

  /// The rotation by minus the row's position. The row may have a factor (RopeConfig), which a
  /// rotation has not. Codes are rounded anew, with a scale of their own.
  void turn_back(std::int64_t entry, const float* row) const {
    const std::int64_t half = (layout_.head_dim - latent_) / 2;
    const KeyPartJob key{
        layout_, page_of(keys_, layout_, entry), entry % block_size_, block_size_, latent_,
        turned_};
    rows_.load_key(key);
    for (std::int64_t i = 0; i < half; ++i) {
      const float factor = 1.0F / std::hypot(row[i], row[half + i]);
      const float cosine = row[i] * factor, sine = row[half + i] * factor;
      const float a = turned_[i], b = turned_[half + i];
      turned_[i] = a * cosine + b * sine;
      turned_[half + i] = b * cosine - a * sine;
    }
    rows_.store_key(key);
  }

  const RowKernels& rows_;
  float* turned_;
  KvRowLayout layout_;        // of keys
  KvRowLayout value_layout_;  // of values
  const std::int32_t* blocks_;
  std::int64_t block_size_, heads_, head_, latent_;
  Element* keys_;
  Element* values_;
  float* weights_;
};

/// The weights of entries [begin, end), each averaged over `width` neighbours.
template <class Element>
std::vector<float> pooled_weights(const HeadEntries<Element>& head, std::int64_t begin,
                                  std::int64_t end, std::int64_t width) {
  std::vector<float> pooled;
  for (std::int64_t entry = begin; entry < end; ++entry) {
    float sum = 0.0F;
    const std::int64_t last = std::min(entry + width / 2, end - 1);
    for (std::int64_t i = std::max(entry - width / 2, begin); i <= last; ++i) sum += head.weight(i);
    pooled.push_back(sum / static_cast<float>(width));
  }
  return pooled;
}

/// The kept entries between the first and the last ones, ascending.
template <class Element>
std::vector<std::int64_t> choose(const KvCompaction& compaction, const CompactedSequence& sequence,
                                 const HeadEntries<Element>& head) {
  const std::int64_t begin = compaction.first_kept, end = sequence.entries - compaction.last_kept;
  const std::int64_t kept = sequence.kept - compaction.first_kept - compaction.last_kept;
  std::vector<std::int64_t> entries(static_cast<std::size_t>(end - begin));
  std::iota(entries.begin(), entries.end(), begin);
  const std::vector<float> weights = pooled_weights(head, begin, end, compaction.pooling);
  const auto weight = [&](std::int64_t entry) {
    return weights[static_cast<std::size_t>(entry - begin)];
  };
  const auto is_better = [&](std::int64_t a, std::int64_t b) {
    return weight(a) > weight(b) || (weight(a) == weight(b) && a < b);
  };
  std::nth_element(entries.begin(), entries.begin() + kept, entries.end(), is_better);
  entries.resize(static_cast<std::size_t>(kept));
  std::ranges::sort(entries);
  return entries;
}

template <class Element>
void compact_head(const KvCompaction& compaction, const CompactedSequence& sequence,
                  const HeadEntries<Element>& head, const Tensor& rope) {
  const float* turns = compaction.turns_keys ? rope.as<float>() : nullptr;
  std::int64_t to = compaction.first_kept;
  if (compaction.by_weight) {
    for (const std::int64_t from : choose(compaction, sequence, head)) {
      if (from != to) head.move(from, to, turns);
      ++to;
    }
  }
  const std::int64_t dropped = sequence.entries - sequence.kept;
  for (; to < sequence.kept; ++to) head.move(to + dropped, to, turns);
}

}  // namespace

void CpuAttentionOps::do_accumulate_weights(const Tensor& q, const AttentionShape& shape,
                                            const AttentionBatch& batch, const KvLayer& cache) {
  auto* const weights = cache.weights.as<float>();
  const std::int64_t block_size = batch.block_size, group = shape.heads / shape.kv_heads;
  for (std::int64_t token = 0; token < q[0]; ++token) {
    const std::int32_t slot = batch.kv_slots.as<std::int32_t>()[token];
    float* page = weights + slot / block_size * shape.kv_heads * block_size + slot % block_size;
    for (std::int64_t head = 0; head < shape.kv_heads; ++head) page[head * block_size] = 0.0F;
  }
  if (batch.observed_rows.empty()) return;
  const auto sequences = static_cast<std::int64_t>(batch.sequences.size());
  std::int64_t read = 0;
  for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceSpan& span = batch.sequences[s];
    read += std::int64_t{batch.observed_rows[s]} * (span.first_position + span.rows);
  }
  // A token's sums are added by one thread.
  context_.for_rows(
      sequences * shape.kv_heads, read * shape.heads * shape.head_dim,
      [&](std::int64_t begin, std::int64_t end, int member) {
        for (std::int64_t i = begin; i < end; ++i) {
          const auto s = static_cast<std::size_t>(i / shape.kv_heads);
          const SequenceSpan& span = batch.sequences[s];
          const std::int64_t rows = batch.observed_rows[s], skipped = span.rows - rows;
          AttentionWeightsJob job;
          job.weights = weights;
          job.attention.q =
              q.as<float>() + (span.first_row + skipped) * shape.heads * shape.head_dim;
          job.attention.rows = rows;
          job.attention.first_position = span.first_position + skipped;
          job.attention.keys = cache.keys.data();
          job.attention.layout = shape.row_layout(cache.keys.dtype());
          job.attention.blocks = batch.block_tables.as<std::int32_t>() + span.block_offset;
          job.attention.block_size = block_size;
          job.attention.first_head = i % shape.kv_heads * group;
          job.attention.heads = group;
          job.attention.shape = shape;
          job.attention.scratch = context_.scratch(member);
          context_.kernels().attention_weights(job);
        }
      });
}

void CpuAttentionOps::do_compact(const KvCompaction& compaction, const AttentionShape& shape,
                                 const Tensor& rope, const KvLayer& cache) {
  std::int64_t entries = 0;
  for (const CompactedSequence& sequence : compaction.sequences) entries += sequence.entries;
  const auto sequences = static_cast<std::int64_t>(compaction.sequences.size());
  context_.for_rows(sequences * shape.kv_heads, entries * shape.kv_heads * shape.head_dim * 8,
                    [&](std::int64_t begin, std::int64_t end, int member) {
                      for (std::int64_t i = begin; i < end; ++i) {
                        const auto& sequence =
                            compaction.sequences[static_cast<std::size_t>(i / shape.kv_heads)];
                        const std::int64_t head = i % shape.kv_heads;
                        with_elements(cache.keys.dtype(), [&](auto element) {
                          const HeadEntries<decltype(element)> entries(
                              compaction, sequence, shape, cache, head, context_.kernels().rows,
                              context_.scratch(member));
                          compact_head(compaction, sequence, entries, rope);
                        });
                      }
                    });
}

}  // namespace troupe
