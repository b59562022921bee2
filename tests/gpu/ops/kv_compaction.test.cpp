#include <cmath>
#include <vector>

#include "models/layers/attention/rope_table.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

class KvCompactions : public BothDevices {
 protected:
  static constexpr std::int64_t blocks = 80, block_size = 16;

  /// One device's cache, compacted, and what it then has of every slot.
  HostTensor compacted(Ops& ops, const AttentionShape& shape, const HostTensor& rows,
                       const std::vector<CompactedSequence>& sequences,
                       const std::vector<std::int32_t>& tables, const HostTensor& rope) {
    const auto upload = [&](const Tensor& host) {
      auto device = ops.memory().allocate(host.dtype(), host.shape());
      EXPECT_TRUE(device.ok());
      ops.memory().upload(host, *device);
      EXPECT_TRUE(ops.stream().synchronize().ok());
      return *std::move(device);
    };
    auto pages = ops.attention().allocate_kv(blocks, block_size, shape, GetParam());
    EXPECT_TRUE(pages.ok()) << pages.error().message;
    const KvLayer cache{pages->first, pages->second};
    std::vector<std::int32_t> slots(blocks * block_size);
    std::iota(slots.begin(), slots.end(), 0);
    const auto count = static_cast<std::int64_t>(slots.size());
    const DeviceTensor places = upload(integers(slots, {count}));
    ops.attention().scatter_kv(upload(rows), shape, places, cache);
    std::vector<std::int32_t> numbers;
    for (const CompactedSequence& one : sequences) {
      numbers.insert(numbers.end(), {one.block_offset, one.entries, one.kept});
    }
    const auto n = static_cast<std::int64_t>(sequences.size());
    const DeviceTensor device_tables =
        upload(integers(tables, {static_cast<std::int64_t>(tables.size())}));
    const DeviceTensor device_sequences = upload(integers(numbers, {n, numbers_of_compacted}));
    const DeviceTensor device_rope = upload(rope);
    ops.attention().compact({.sequences = sequences,
                             .device_sequences = device_sequences,
                             .block_tables = device_tables,
                             .block_size = block_size,
                             .first_kept = 4,
                             .turns_keys = true},
                            shape, device_rope, cache);
    auto found = ops.memory().allocate(GetParam(), {count, shape.cached_elements()});
    EXPECT_TRUE(found.ok());
    ops.attention().gather_kv(cache, shape, places, *found);
    HostTensor host(GetParam(), {count, shape.cached_elements()});
    ops.memory().download(*found, host);
    EXPECT_TRUE(ops.stream().synchronize().ok());
    return host;
  }
};

TEST_P(KvCompactions, leave_what_the_cpu_leaves) {
  const AttentionShape shapes[] = {{.heads = 8, .kv_heads = 8, .head_dim = 128},
                                   {.heads = 2, .kv_heads = 1, .head_dim = 80},
                                   {.heads = 4, .kv_heads = 2, .head_dim = 32},
                                   {.heads = 16, .kv_heads = 1, .head_dim = 576, .latent = 512}};
  for (const AttentionShape& shape : shapes) {
    SCOPED_TRACE(shape.head_dim);
    const HostTensor numbers = random({blocks * block_size, shape.cached_elements()});
    HostTensor rows(GetParam(), numbers->shape());
    for (std::int64_t i = 0; i < rows->elements(); ++i) {
      const float value = numbers->as<float>()[i];
      if (is_bf16()) {
        rows->as<BFloat16>()[i] = to_bfloat16(value);
      } else {
        rows->as<float>()[i] = value;
      }
    }
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

INSTANTIATE_TEST_SUITE_P(Dtypes, KvCompactions, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace troupe
