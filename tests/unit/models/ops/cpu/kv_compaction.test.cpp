#include <cmath>
#include <numeric>

#include "models/ops/cpu/cpu_ops.hpp"
#include "tests/unit/models/ops/cpu/ops_fixture.hpp"

namespace troupe {
namespace {

constexpr std::int32_t block_size = 16, entries = 150;
constexpr std::int64_t blocks = 12;

/// One sequence's cache with weights, and random rows of keys and values in it.
struct WeighedCache {
  WeighedCache(Ops& made, const AttentionShape& of, Random& random) : ops(made), shape(of) {
    for (std::int32_t i = 0; i < blocks; ++i) tables.push_back((i * 7 + 3) % blocks);
    auto pages = ops.attention().allocate_kv(blocks, block_size, shape, DType::f32);
    EXPECT_TRUE(pages.ok());
    owners = *std::move(pages);
    weights = floats({blocks, shape.kv_heads, block_size});
    cache = {owners.first, owners.second, weights};
    for (std::int32_t entry = 0; entry < entries; ++entry) slots.push_back(slot(entry));
    rows = random.normal({entries, shape.cached_elements()});
    ops.attention().scatter_kv(rows, shape, integers(slots), cache);
  }

  std::int32_t slot(std::int32_t entry) const {
    return tables[static_cast<std::size_t>(entry / block_size)] * block_size + entry % block_size;
  }
  float& weight(std::int32_t entry, std::int64_t head) {
    return weights->as<float>()[(slot(entry) / block_size * shape.kv_heads + head) * block_size +
                                entry % block_size];
  }
  /// What the cache has of `count` entries, [count, cached_elements].
  HostTensor stored(std::int32_t count) {
    HostTensor found = floats({count, shape.cached_elements()});
    const std::vector<std::int32_t> first(slots.begin(), slots.begin() + count);
    ops.attention().gather_kv(cache, shape, integers(first), found);
    return found;
  }
  void compact(std::int32_t kept, KvCompaction compaction, const Tensor& rope = {}) {
    const CompactedSequence sequences[] = {{0, entries, kept}};
    const HostTensor table = integers(tables);
    compaction.sequences = sequences;
    compaction.block_tables = table;
    compaction.block_size = block_size;
    ops.attention().compact(compaction, shape, rope, cache);
  }
  /// Observes the last `observed` of the entries as rows of `q` [entries, heads * head_dim].
  void observe(const Tensor& q, std::int32_t begin, std::int32_t observed) {
    const SequenceSpan spans[] = {{0, entries - begin, begin, 0}};
    const std::int32_t counts[] = {observed};
    const std::vector<std::int32_t> own(slots.begin() + begin, slots.end());
    const HostTensor slot = integers(own), table = integers(tables);
    AttentionBatch batch{slot, slot, table, spans, block_size, {}};
    batch.observed_rows = counts;
    ops.attention().accumulate_weights(q.rows(begin, entries - begin), shape, batch, cache);
  }

  Ops& ops;
  AttentionShape shape;
  std::vector<std::int32_t> tables, slots;
  std::pair<DeviceTensor, DeviceTensor> owners;
  HostTensor weights, rows;
  KvLayer cache;
};

const AttentionShape grouped{.heads = 6, .kv_heads = 2, .head_dim = 32, .scale = 0.2F};

/// The sums by definition: the softmax of each observed row and head over its keys.
std::vector<double> summed_weights(const WeighedCache& cache, const Tensor& q,
                                   std::int32_t observed, std::int64_t kv_head) {
  const AttentionShape& shape = cache.shape;
  const std::int64_t dim = shape.head_dim, group = shape.heads / shape.kv_heads;
  std::vector<double> sums(entries, 0.0);
  for (std::int32_t row = entries - observed; row < entries; ++row) {
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      std::vector<double> terms;
      for (std::int32_t entry = 0; entry <= row; ++entry) {
        double score = 0.0;
        for (std::int64_t d = 0; d < dim; ++d) {
          score +=
              double{q.as<float>()[row * shape.heads * dim + head * dim + d]} *
              double{cache.rows->as<float>()[entry * cache.rows.view()[1] + kv_head * dim + d]};
        }
        terms.push_back(std::exp(score * double{shape.scale}));
      }
      const double total = std::accumulate(terms.begin(), terms.end(), 0.0);
      for (std::size_t i = 0; i < terms.size(); ++i) sums[i] += terms[i] / total;
    }
  }
  return sums;
}

TEST(AttentionWeights, are_the_softmax_of_observed_rows_summed_over_rows_and_heads) {
  Random random(3);
  const auto ops = make_ops();
  WeighedCache cache(*ops, grouped, random);
  const HostTensor q = random.normal({entries, grouped.heads * grouped.head_dim});
  cache.observe(q, 0, 40);
  for (std::int64_t head = 0; head < grouped.kv_heads; ++head) {
    const auto expected = summed_weights(cache, q, 40, head);
    for (std::int32_t entry = 0; entry < entries; ++entry) {
      EXPECT_NEAR(double{cache.weight(entry, head)}, expected[static_cast<std::size_t>(entry)],
                  1e-5);
    }
  }
}

TEST(AttentionWeights, have_the_same_bits_in_other_passes_with_other_kernels_and_threads) {
  Random random(4);
  const auto whole_ops = make_ops();
  WeighedCache whole(*whole_ops, grouped, random);
  const HostTensor q = random.normal({entries, grouped.heads * grouped.head_dim});
  whole.observe(q, 0, entries);
  Random again(4);
  const auto other_ops = make_ops(2, DType::f32, CpuIsa::avx2);
  WeighedCache parts(*other_ops, grouped, again);
  // The first pass has the rows before 97 only: those behind are not there yet.
  const SequenceSpan spans[] = {{0, 97, 0, 0}};
  const std::int32_t counts[] = {97};
  const HostTensor slot = integers({parts.slots.begin(), parts.slots.begin() + 97});
  const HostTensor table = integers(parts.tables);
  AttentionBatch batch{slot, slot, table, spans, block_size, {}};
  batch.observed_rows = counts;
  other_ops->attention().accumulate_weights(q->rows(0, 97), grouped, batch, parts.cache);
  parts.observe(q, 97, entries - 97);
  expect_same_bits(parts.weights, whole.weights);
}

TEST(Compaction, keeps_the_first_entries_and_the_last_ones) {
  Random random(5);
  const auto ops = make_ops();
  WeighedCache cache(*ops, grouped, random);
  cache.compact(60, {.first_kept = 4});
  const HostTensor found = cache.stored(60);
  expect_same_bits(found->rows(0, 4), cache.rows->rows(0, 4));
  expect_same_bits(found->rows(4, 56), cache.rows->rows(entries - 56, 56));
}

TEST(Compaction, turns_keys_to_the_position_of_their_new_entry) {
  Random random(6);
  const auto ops = make_ops();
  WeighedCache cache(*ops, grouped, random);
  const std::int64_t dim = grouped.head_dim;
  HostTensor rope = floats({entries, dim});
  for (std::int64_t p = 0; p < entries; ++p) {
    for (std::int64_t i = 0; i < dim / 2; ++i) {
      const double angle = p * std::pow(100.0, -2.0 * i / dim);
      rope->as<float>()[p * dim + i] = static_cast<float>(1.3 * std::cos(angle));
      rope->as<float>()[p * dim + dim / 2 + i] = static_cast<float>(1.3 * std::sin(angle));
    }
  }
  cache.compact(60, {.first_kept = 4, .turns_keys = true}, rope);
  const HostTensor found = cache.stored(60);
  // Entry 4 was entry 94: it is turned back by 90 positions, whatever the table's factor is.
  const float* before = cache.rows->as<float>() + 94 * cache.rows.view()[1];
  const float* after = found->as<float>() + 4 * found.view()[1];
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const double angle = 90 * std::pow(100.0, -2.0 * i / dim);
    EXPECT_NEAR(after[i], before[i] * std::cos(angle) + before[dim / 2 + i] * std::sin(angle),
                1e-5);
    EXPECT_NEAR(after[dim / 2 + i],
                before[dim / 2 + i] * std::cos(angle) - before[i] * std::sin(angle), 1e-5);
  }
  const std::int64_t values = grouped.kv_heads * dim;
  for (std::int64_t i = values; i < 2 * values; ++i) EXPECT_EQ(after[i], before[i]);
}

TEST(Compaction, keeps_what_has_the_largest_weights_of_each_head) {
  Random random(7);
  const auto ops = make_ops();
  WeighedCache cache(*ops, grouped, random);
  // Head 0 prefers the entries whose number 3 divides, of equals the earlier ones; head 1 those
  // from 100 on, but for the last ten, which are kept anyway.
  for (std::int32_t entry = 0; entry < entries; ++entry) {
    cache.weight(entry, 0) = entry % 3 == 0 ? 2.0F : 1.0F;
    cache.weight(entry, 1) = static_cast<float>(entry);
  }
  cache.compact(30, {.last_kept = 10, .by_weight = true});
  const HostTensor found = cache.stored(30);
  const std::int64_t dim = grouped.head_dim;
  for (std::int32_t entry = 0; entry < 30; ++entry) {
    const std::int32_t sources[] = {entry < 20 ? 3 * entry : 120 + entry, 120 + entry};
    for (std::int64_t head = 0; head < 2; ++head) {
      const std::int32_t source = sources[head];
      const float* expected = cache.rows->as<float>() + source * cache.rows.view()[1] + head * dim;
      const float* key = found->as<float>() + entry * found.view()[1] + head * dim;
      EXPECT_EQ(key[0], expected[0]) << "entry " << entry << ", head " << head;
      EXPECT_EQ(key[2 * dim], expected[2 * dim]) << "value of entry " << entry;
      EXPECT_EQ(cache.weight(entry, head),
                head == 0 ? (source % 3 == 0 ? 2.0F : 1.0F) : static_cast<float>(source));
    }
  }
}

TEST(Compaction, averages_weights_over_neighbours) {
  Random random(8);
  const auto ops = make_ops();
  WeighedCache cache(*ops, grouped, random);
  for (std::int32_t entry = 0; entry < entries; ++entry) {
    for (const std::int64_t head : {0, 1}) cache.weight(entry, head) = entry == 50 ? 9.0F : 0.0F;
  }
  cache.compact(15, {.last_kept = 10, .by_weight = true, .pooling = 5});
  const HostTensor found = cache.stored(15);
  expect_same_bits(found->rows(0, 5), cache.rows->rows(48, 5));
}

}  // namespace
}  // namespace troupe
