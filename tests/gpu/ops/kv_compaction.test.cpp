#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "models/layers/attention/rope_table.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

/// Caches of both devices, and how their contents come and go.
class KvCaches : public BothDevices {
 protected:
  static constexpr std::int64_t blocks = 80, block_size = 16;

  /// A tensor of this device, with the host's numbers.
  static DeviceTensor put(Ops& ops, const Tensor& host) {
    auto device = ops.memory().allocate(host.dtype(), host.shape());
    EXPECT_TRUE(device.ok()) << device.error().message;
    ops.memory().upload(host, *device);
    EXPECT_TRUE(ops.stream().synchronize().ok());
    return *std::move(device);
  }
  static HostTensor get(Ops& ops, const Tensor& device) {
    HostTensor host(device.dtype(), device.shape());
    ops.memory().download(device, host);
    EXPECT_TRUE(ops.stream().synchronize().ok());
    return host;
  }
  HostTensor in_dtype(const Tensor& numbers) const {
    return is_bf16() ? narrow(numbers) : copy_of(numbers);
  }
  static HostTensor all_slots() {
    std::vector<std::int32_t> slots(blocks * block_size);
    std::iota(slots.begin(), slots.end(), 0);
    return integers(slots, {blocks * block_size});
  }
  static HostTensor integers_of(const std::vector<CompactedSequence>& sequences) {
    std::vector<std::int32_t> numbers;
    for (const CompactedSequence& one : sequences) {
      numbers.insert(numbers.end(), {one.block_offset, one.entries, one.kept});
    }
    return integers(numbers, {std::ssize(sequences), numbers_of_compacted});
  }
};

class KvCompactions : public KvCaches {
 protected:
  /// One device's cache, compacted, and what it then has of every slot.
  HostTensor compacted(Ops& ops, const AttentionShape& shape, const HostTensor& rows,
                       const std::vector<CompactedSequence>& sequences,
                       const std::vector<std::int32_t>& tables, const HostTensor& rope) {
    auto pages = ops.attention().allocate_kv(blocks, block_size, shape, GetParam());
    EXPECT_TRUE(pages.ok()) << pages.error().message;
    const KvLayer cache{pages->first, pages->second};
    const DeviceTensor places = put(ops, all_slots());
    ops.attention().scatter_kv(put(ops, rows), shape, places, cache);
    const DeviceTensor device_tables = put(ops, integers(tables, {std::ssize(tables)}));
    const DeviceTensor device_sequences = put(ops, integers_of(sequences));
    const DeviceTensor device_rope = put(ops, rope);
    ops.attention().compact({.sequences = sequences,
                             .device_sequences = device_sequences,
                             .block_tables = device_tables,
                             .block_size = block_size,
                             .first_kept = 4,
                             .turns_keys = true},
                            shape, device_rope, cache);
    auto found = ops.memory().allocate(GetParam(), {blocks * block_size, shape.cached_elements()});
    EXPECT_TRUE(found.ok()) << found.error().message;
    ops.attention().gather_kv(cache, shape, places, *found);
    return get(ops, *found);
  }
};

TEST_P(KvCompactions, leave_what_the_cpu_leaves) {
  const AttentionShape shapes[] = {{.heads = 8, .kv_heads = 8, .head_dim = 128},
                                   {.heads = 2, .kv_heads = 1, .head_dim = 80},
                                   {.heads = 4, .kv_heads = 2, .head_dim = 32},
                                   {.heads = 16, .kv_heads = 1, .head_dim = 576, .latent = 512}};
  for (const AttentionShape& shape : shapes) {
    SCOPED_TRACE(shape.head_dim);
    const HostTensor rows = in_dtype(random({blocks * block_size, shape.cached_elements()}));
    const std::vector<std::int32_t> tables = shuffled(blocks);
    const std::vector<CompactedSequence> sequences{{0, 600, 500}, {40, 33, 20}, {50, 480, 5}};
    const HostTensor rope = rope_table({}, 600, shape.head_dim - shape.latent);
    const HostTensor expected = compacted(*cpu_, shape, rows, sequences, tables, rope);
    const HostTensor found = compacted(*gpu_, shape, rows, sequences, tables, rope);
    double worst = 0.0;
    for (std::int64_t i = 0; i < found->elements(); ++i) {
      const auto at = [&](const HostTensor& tensor) {
        return is_bf16() ? to_float(tensor->as<BFloat16>()[i]) : tensor->as<float>()[i];
      };
      worst = std::max(worst, std::abs(static_cast<double>(at(found)) - at(expected)));
    }
    EXPECT_LE(worst, is_bf16() ? 0.04 : 1e-5);
  }
}

/// Caches with weights, the same on both devices: entry i of sequence s is the (i % 16)-th of block
/// i / 16 of its table.
class AttentionWeights : public KvCaches {
 protected:
  struct Cache {
    std::pair<DeviceTensor, DeviceTensor> pages;
    DeviceTensor weights;
    KvLayer layer;
  };

  Cache make(Ops& ops, const AttentionShape& shape, const HostTensor& rows,
             const HostTensor& weights) {
    Cache made;
    auto pages = ops.attention().allocate_kv(blocks, block_size, shape, GetParam());
    EXPECT_TRUE(pages.ok());
    made.pages = *std::move(pages);
    made.weights = put(ops, weights);
    made.layer = {made.pages.first, made.pages.second, made.weights};
    ops.attention().scatter_kv(put(ops, rows), shape, put(ops, all_slots()), made.layer);
    return made;
  }

  /// Lets the rows of `q` that the spans say be observed, as many of each sequence's last ones.
  void observe(Ops& ops, const AttentionShape& shape, const Cache& cache, const Tensor& q,
               const std::vector<SequenceSpan>& spans, const std::vector<std::int32_t>& observed) {
    std::vector<std::int32_t> slots;
    for (const SequenceSpan& span : spans) {
      for (std::int32_t i = 0; i < span.rows; ++i) {
        const std::int32_t entry = span.first_position + i;
        const auto place = static_cast<std::size_t>(span.block_offset + entry / block_size);
        slots.push_back(tables_[place] * static_cast<std::int32_t>(block_size) +
                        entry % static_cast<std::int32_t>(block_size));
      }
    }
    const auto rows = static_cast<std::int64_t>(slots.size());
    const auto sequences = static_cast<std::int64_t>(spans.size());
    const DeviceTensor places = put(ops, integers(slots, {rows}));
    const DeviceTensor table =
        put(ops, integers(tables_, {static_cast<std::int64_t>(tables_.size())}));
    const DeviceTensor device_spans =
        put(ops, integers(numbers_of(spans), {sequences, numbers_of_span}));
    const DeviceTensor device_observed = put(ops, integers(observed, {sequences}));
    AttentionBatch batch{.positions = places,
                         .kv_slots = places,
                         .block_tables = table,
                         .sequences = spans,
                         .block_size = static_cast<std::int32_t>(block_size),
                         .spans = device_spans};
    batch.observed_rows = observed;
    batch.device_observed_rows = device_observed;
    ops.attention().accumulate_weights(q, shape, batch, cache.layer);
    EXPECT_TRUE(ops.stream().synchronize().ok());
  }

  std::vector<std::int32_t> tables_ = shuffled(blocks);
};

TEST_P(AttentionWeights, are_those_of_the_cpu_and_have_the_same_bits_in_other_passes) {
  const AttentionShape shapes[] = {
      {.heads = 8, .kv_heads = 2, .head_dim = 128, .scale = 0.09F},
      {.heads = 6, .kv_heads = 2, .head_dim = 80, .scale = 0.1F, .soft_cap = 5.0F},
      {.heads = 20, .kv_heads = 1, .head_dim = 64, .scale = 0.12F},
      {.heads = 4, .kv_heads = 4, .head_dim = 256, .scale = 0.06F}};
  for (const AttentionShape& shape : shapes) {
    SCOPED_TRACE(shape.head_dim);
    const HostTensor rows = in_dtype(random({blocks * block_size, shape.cached_elements()}));
    const HostTensor weights = random({blocks, shape.kv_heads, block_size});
    for (float& weight : weights->span<float>()) weight = std::abs(weight);
    const Cache on_cpu = make(*cpu_, shape, rows, weights);
    const Cache on_gpu = make(*gpu_, shape, rows, weights);
    const Cache in_parts = make(*gpu_, shape, rows, weights);
    // A prompt, some rows behind others, single rows, and one that is not observed.
    const std::vector<SequenceSpan> spans{
        {0, 200, 0, 0}, {200, 70, 430, 20}, {270, 1, 320, 52}, {271, 1, 40, 74}};
    const std::vector<std::int32_t> observed{200, 33, 1, 0};
    const HostTensor q = random({272, shape.heads * shape.head_dim});
    observe(*cpu_, shape, on_cpu, q, spans, observed);
    const DeviceTensor device_q = activation(q);
    observe(*gpu_, shape, on_gpu, device_q, spans, observed);
    const HostTensor expected = get(*cpu_, on_cpu.weights), found = get(*gpu_, on_gpu.weights);
    for (std::int64_t i = 0; i < expected->elements(); ++i) {
      const float wanted = expected->as<float>()[i];
      ASSERT_NEAR(found->as<float>()[i], wanted, 1e-4F * (1.0F + wanted)) << "weight " << i;
    }
    // The same rows one after the other, in passes of other sizes.
    observe(*gpu_, shape, in_parts, device_q->rows(0, 131), {{0, 131, 0, 0}}, {131});
    observe(*gpu_, shape, in_parts, device_q->rows(131, 1), {{0, 1, 131, 0}}, {1});
    observe(*gpu_, shape, in_parts, device_q->rows(132, 138), {{0, 68, 132, 0}, {68, 70, 430, 20}},
            {68, 33});
    observe(*gpu_, shape, in_parts, device_q->rows(270, 2), {{0, 1, 320, 52}, {1, 1, 40, 74}},
            {1, 0});
    const HostTensor again = get(*gpu_, in_parts.weights);
    for (std::int64_t i = 0; i < found->elements(); ++i) {
      ASSERT_EQ(again->as<float>()[i], found->as<float>()[i]) << "weight " << i;
    }
  }
}

TEST_P(AttentionWeights, choose_the_entries_that_the_cpu_keeps) {
  const AttentionShape shapes[] = {{.heads = 8, .kv_heads = 2, .head_dim = 128},
                                   {.heads = 3, .kv_heads = 3, .head_dim = 80}};
  for (const AttentionShape& shape : shapes) {
    for (const KvCompaction& compaction :
         {KvCompaction{.last_kept = 10, .by_weight = true},
          KvCompaction{.first_kept = 3, .last_kept = 16, .by_weight = true, .pooling = 7}}) {
      const HostTensor rows = in_dtype(random({blocks * block_size, shape.cached_elements()}));
      const HostTensor weights = random({blocks, shape.kv_heads, block_size});
      // Many are equal, and many are 0.
      for (float& weight : weights->span<float>()) {
        weight = std::floor(std::max(weight, 0.0F) * 4.0F);
      }
      const std::vector<CompactedSequence> sequences{{0, 620, 500}, {40, 33, 20}, {50, 480, 26}};
      const auto kept_by = [&](Ops& ops) {
        const Cache cache = make(ops, shape, rows, weights);
        const DeviceTensor table = put(ops, integers(tables_, {blocks}));
        const DeviceTensor device_sequences = put(ops, integers_of(sequences));
        KvCompaction all = compaction;
        all.sequences = sequences;
        all.device_sequences = device_sequences;
        all.block_tables = table;
        all.block_size = static_cast<std::int32_t>(block_size);
        ops.attention().compact(all, shape, {}, cache.layer);
        const DeviceTensor slots = put(ops, all_slots());
        const HostTensor none(GetParam(), {blocks * block_size, shape.cached_elements()});
        const DeviceTensor found = put(ops, none);
        ops.attention().gather_kv(cache.layer, shape, slots, found);
        return std::pair(get(ops, found), get(ops, cache.weights));
      };
      const auto [expected, expected_weights] = kept_by(*cpu_);
      const auto [found, found_weights] = kept_by(*gpu_);
      // What lies behind the kept entries is not compared.
      for (const CompactedSequence& one : sequences) {
        for (std::int32_t entry = 0; entry < one.kept; ++entry) {
          const auto place = static_cast<std::size_t>(one.block_offset + entry / block_size);
          const std::int64_t slot = tables_[place] * block_size + entry % block_size;
          const auto bytes = static_cast<std::size_t>(expected->bytes()) /
                             static_cast<std::size_t>(blocks * block_size);
          const auto* wanted = static_cast<const std::byte*>(expected->data()) +
                               bytes * static_cast<std::size_t>(slot);
          const auto* is =
              static_cast<const std::byte*>(found->data()) + bytes * static_cast<std::size_t>(slot);
          ASSERT_EQ(std::memcmp(wanted, is, bytes), 0)
              << "entry " << entry << " of " << one.entries;
          for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
            const std::int64_t weight =
                (slot / block_size * shape.kv_heads + head) * block_size + slot % block_size;
            ASSERT_EQ(found_weights->as<float>()[weight], expected_weights->as<float>()[weight]);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, AttentionWeights, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

INSTANTIATE_TEST_SUITE_P(Dtypes, KvCompactions, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace troupe
