// Dense GEMMs and related operations, beside the CPU's.
#include <cmath>

#include <fmt/format.h>

#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

class Products : public BothDevices {};

INSTANTIATE_TEST_SUITE_P(Dtypes, Products, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(Products, of_few_rows_are_alike_whoever_shares_the_batch) {
  for (const auto& [n, k] : {std::pair{64, 64},
                             {48, 704},
                             {1000, 1032},
                             {17, 8},
                             {152, 12288},
                             {2300, 4096},
                             {4500, 4096},
                             {8200, 1032},
                             {40, 3072}}) {
    const HostTensor weight = random({n, k}, 1.0F / std::sqrt(static_cast<float>(k))),
                     x = random({12, k});
    auto gpu_weight = gpu_->weights().prepare(weight, 1, WeightEncoding::plain);
    auto cpu_weight = cpu_->weights().prepare(weight, 1, WeightEncoding::plain);
    ASSERT_TRUE(gpu_weight.ok() && cpu_weight.ok());
    const DeviceTensor gpu_x = activation(x);
    HostTensor of_eight;
    for (const std::int64_t rows : {8, 1, 3, 7, 9, 12}) {
      const HostTensor expected(DType::f32, {rows, n});
      cpu_->dense().linear(**cpu_weight, x->rows(0, rows), expected);
      const DeviceTensor out = room(DType::f32, {rows, n}), own = room(GetParam(), {rows, n});
      gpu_->dense().linear(**gpu_weight, gpu_x->rows(0, rows), out);
      gpu_->dense().linear(**gpu_weight, gpu_x->rows(0, rows), own);
      const std::string what = fmt::format("{} rows of {} by {}", rows, k, n);
      expect_equal(out, expected, what);
      expect_equal(own, expected, what);
      if (!is_bf16() || rows > 8) continue;
      HostTensor found = back(out);
      if (of_eight->empty()) of_eight = back(out);
      for (std::int64_t i = 0; i < found->elements(); ++i) {
        ASSERT_EQ(found->as<float>()[i], of_eight->as<float>()[i]) << what << ", element " << i;
      }
    }
  }
}

TEST_P(Products, of_decode_batches_are_the_hosts_however_they_are_cut) {
  // One part of k and several, ends of n and k within tiles, all numbers of rows in a tile.
  for (const auto& [n, k] :
       {std::pair{64, 64}, {1024, 2048}, {1536, 1032}, {4104, 520}, {72, 4096}, {6144, 2048}}) {
    const HostTensor weight = random({n, k}, 1.0F / std::sqrt(static_cast<float>(k))),
                     x = random({130, k});
    auto gpu_weight = gpu_->weights().prepare(weight, 1, WeightEncoding::plain);
    auto cpu_weight = cpu_->weights().prepare(weight, 1, WeightEncoding::plain);
    ASSERT_TRUE(gpu_weight.ok() && cpu_weight.ok());
    const DeviceTensor gpu_x = activation(x);
    for (const std::int64_t rows : {9, 32, 33, 64, 65, 96, 97, 128, 130}) {
      const HostTensor expected(DType::f32, {rows, n});
      cpu_->dense().linear(**cpu_weight, x->rows(0, rows), expected);
      const DeviceTensor out = room(DType::f32, {rows, n}), own = room(GetParam(), {rows, n});
      gpu_->dense().linear(**gpu_weight, gpu_x->rows(0, rows), out);
      gpu_->dense().linear(**gpu_weight, gpu_x->rows(0, rows), own);
      const std::string what = fmt::format("{} rows of {} by {}", rows, k, n);
      expect_equal(out, expected, what);
      expect_equal(own, expected, what);
    }
  }
}

TEST_P(Products, of_decode_batches_are_gated_in_tiles_of_every_size) {
  for (const auto& [inner, k] : {std::pair{48, 72}, {1000, 264}, {9608, 136}, {3000, 1160}}) {
    // Weights shrink with k, so that sums, and with them rounding errors, are as large for any k.
    const float most = 1.5F / std::sqrt(static_cast<float>(k));
    const HostTensor weight = random({2 * inner, k}, most), x = random({130, k});
    auto gpu_weight = gpu_->weights().prepare(weight, 1, WeightEncoding::plain);
    auto cpu_weight = cpu_->weights().prepare(weight, 1, WeightEncoding::plain);
    ASSERT_TRUE(gpu_weight.ok() && cpu_weight.ok());
    const DeviceTensor gpu_x = activation(x);
    for (const std::int64_t rows : {9, 40, 64, 90, 128, 130}) {
      const HostTensor cpu_scratch(DType::f32, {rows, 2 * inner}),
          expected(DType::f32, {rows, inner});
      cpu_->dense().linear_gate_up(**cpu_weight, x->rows(0, rows), cpu_scratch, expected);
      const DeviceTensor scratch = room(GetParam(), {rows, 2 * inner}),
                         out = room(GetParam(), {rows, inner});
      gpu_->dense().linear_gate_up(**gpu_weight, gpu_x->rows(0, rows), scratch, out);
      expect_equal(out, expected, fmt::format("{} rows of {} by 2 x {}", rows, k, inner));
    }
  }
}

TEST_P(Products, are_gated_at_any_number_of_rows) {
  for (const auto& [inner, k] :
       {std::pair{64, 64}, {24, 704}, {23, 40}, {1000, 136}, {9, 15}, {4100, 1032}}) {
    const HostTensor weight = random({2 * inner, k}, 1.0F / std::sqrt(static_cast<float>(k))),
                     x = random({70, k});
    auto gpu_weight = gpu_->weights().prepare(weight, 1, WeightEncoding::plain);
    auto cpu_weight = cpu_->weights().prepare(weight, 1, WeightEncoding::plain);
    ASSERT_TRUE(gpu_weight.ok() && cpu_weight.ok());
    const DeviceTensor gpu_x = activation(x);
    for (const std::int64_t rows : {1, 8, 9, 70}) {
      const HostTensor cpu_scratch(DType::f32, {rows, 2 * inner}),
          expected(DType::f32, {rows, inner});
      cpu_->dense().linear_gate_up(**cpu_weight, x->rows(0, rows), cpu_scratch, expected);
      const DeviceTensor scratch = room(GetParam(), {rows, 2 * inner}),
                         out = room(GetParam(), {rows, inner});
      gpu_->dense().linear_gate_up(**gpu_weight, gpu_x->rows(0, rows), scratch, out);
      expect_equal(out, expected, fmt::format("{} rows of {} by 2 x {}", rows, k, inner));
    }
  }
}

TEST_P(Products, are_multiplied_in_a_recording_and_in_the_open_alike) {
  if (!is_bf16()) GTEST_SKIP() << "f32 is not recorded";
  constexpr std::int64_t n = 256, k = 512;
  auto weight = gpu_->weights().prepare(random({n, k}, 0.1F), 1, WeightEncoding::plain);
  ASSERT_TRUE(weight.ok());
  for (const std::int64_t rows : {5, 40}) {
    const DeviceTensor x = activation(random({rows, k}));
    const DeviceTensor recorded = room(DType::f32, {rows, n}), open = room(DType::f32, {rows, n});
    auto graph = gpu_->stream().capture([&]() -> Result<void> {
      gpu_->dense().linear(**weight, x, recorded);
      return {};
    });
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    gpu_->stream().replay(**graph);
    gpu_->dense().linear(**weight, x, open);
    const HostTensor found = back(recorded), expected = back(open);
    for (std::int64_t i = 0; i < found->elements(); ++i) {
      ASSERT_EQ(found->as<float>()[i], expected->as<float>()[i]) << rows << " rows, element " << i;
    }
  }
}

}  // namespace
}  // namespace troupe
