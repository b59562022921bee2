// Every operation of the GPU beside the CPU's, on the same random inputs and odd shapes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/device/convert.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

INSTANTIATE_TEST_SUITE_P(Dtypes, BothDevices, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(BothDevices, embed_rows_and_leave_others_zero) {
  const HostTensor table = random({37, 72});
  auto gpu_table = gpu_->weights().prepare_table(table);
  auto cpu_table = cpu_->weights().prepare_table(table);
  ASSERT_TRUE(gpu_table.ok() && cpu_table.ok());
  const HostTensor ids = integers({5, 99, 41, 4, 20}, {5});
  const HostTensor expected(DType::f32, {5, 72});
  cpu_->dense().embed(*cpu_table, ids, 5, expected);
  const DeviceTensor out = room(GetParam(), {5, 72});
  gpu_->dense().embed(*gpu_table, exact(ids), 5, out);
  expect_equal(out, expected, "embed");
}

TEST_P(BothDevices, normalise_rows) {
  for (const auto& [rows, width] : {std::pair{1, 16}, {3, 200}, {65, 1024}}) {
    const HostTensor x = random({rows, width}), weight = random({width}),
                     residual = random(x->shape());
    const HostTensor expected(DType::f32, x->shape());
    cpu_->dense().rms_norm(x, weight, 1e-6F, expected);
    const DeviceTensor out = room(GetParam(), x->shape());
    gpu_->dense().rms_norm(activation(x), exact(weight), 1e-6F, out);
    expect_equal(out, expected, "rms_norm");
    const DeviceTensor sum = activation(residual);
    gpu_->dense().add_rms_norm(sum, exact(x), exact(weight), 1e-6F, out);
    cpu_->dense().add_rms_norm(residual, x, weight, 1e-6F, expected);
    expect_equal(out, expected, "add_rms_norm");
    expect_equal(sum, residual, "add_rms_norm's residual");
    gpu_->dense().add(sum, exact(x));
    cpu_->dense().add(residual, x);
    expect_equal(sum, residual, "add");
  }
}

TEST_P(BothDevices, add_biases_and_gate) {
  const HostTensor x = random({7, 46}), bias = random({46}), expected(DType::f32, {7, 23});
  const DeviceTensor gpu_x = activation(x);
  gpu_->dense().add_bias(gpu_x, exact(bias));
  cpu_->dense().add_bias(x, bias);
  expect_equal(gpu_x, x, "add_bias");
  const DeviceTensor out = room(GetParam(), {7, 23});
  gpu_->dense().silu_mul(gpu_x, out);
  cpu_->dense().silu_mul(x, expected);
  expect_equal(out, expected, "silu_mul");
}

TEST_P(BothDevices, multiply) {
  for (const auto& [rows, n, k] :
       {std::tuple{1, 64, 64}, {5, 96, 256}, {64, 48, 704}, {300, 512, 96}}) {
    const HostTensor weight = random({n, k}, 0.1F), x = random({rows, k});
    auto gpu_weight = gpu_->weights().prepare(weight, 1, WeightEncoding::plain);
    auto cpu_weight = cpu_->weights().prepare(weight, 1, WeightEncoding::plain);
    ASSERT_TRUE(gpu_weight.ok() && cpu_weight.ok());
    const HostTensor expected(DType::f32, {rows, n});
    cpu_->dense().linear(**cpu_weight, x, expected);
    for (const DType out_dtype : {DType::f32, GetParam()}) {
      const DeviceTensor out = room(out_dtype, {rows, n});
      gpu_->dense().linear(**gpu_weight, activation(x), out);
      expect_equal(out, expected, "linear");
    }
  }
}

TEST_P(BothDevices, multiply_columns_of_heads_with_their_matrices) {
  struct Case {
    std::int64_t heads, n, k, width;  // width of a head in out
  };
  // Moonlight's keys and values, a shape that tensor cores do not take, one of few heads.
  for (const Case& c :
       {Case{16, 512, 128, 576}, {16, 128, 512, 128}, {3, 20, 12, 23}, {2, 72, 48, 72}}) {
    std::vector<HostTensor> owners;
    for (std::int64_t h = 0; h < c.heads; ++h) owners.push_back(random({c.n, c.k}, 0.1F));
    const std::vector<Tensor> views(owners.begin(), owners.end());
    auto cpu_heads = cpu_->weights().prepare_grouped(views, 1, WeightEncoding::plain);
    auto gpu_heads = gpu_->weights().prepare_grouped(views, 1, WeightEncoding::plain);
    ASSERT_TRUE(cpu_heads.ok() && gpu_heads.ok());
    for (const std::int64_t rows : {1, 7, 20, 50, 100, 130}) {
      const std::int64_t before = 8, taken = c.heads * c.k;
      const HostTensor x = random({rows, before + taken + 16}),
                       out = random({rows, c.heads * c.width});
      const DeviceTensor gpu_x = activation(x), gpu_out = activation(out);
      cpu_->moe().heads_linear(**cpu_heads, {x, before, taken}, out);
      gpu_->moe().heads_linear(**gpu_heads, {gpu_x, before, taken}, gpu_out);
      expect_equal(gpu_out, out,
                   fmt::format("{} rows of {} heads {} -> {}", rows, c.heads, c.k, c.n));
    }
  }
}

TEST_P(BothDevices, route_and_run_experts) {
  for (const RouterOptions& options :
       {RouterOptions{.top_k = 4, .normalize = true}, RouterOptions{.top_k = 2},
        RouterOptions{.top_k = 3,
                      .normalize = true,
                      .sigmoid = true,
                      .groups = 4,
                      .top_groups = 2,
                      .scale = 2.5F}}) {
    constexpr std::int64_t tokens = 150, experts = 16, k = 48, n = 72;
    const std::int64_t top_k = options.top_k, pairs = tokens * top_k;
    const HostTensor logits = random({tokens, experts}), bias = random({experts}, 0.1F);
    const HostTensor ids(DType::i32, {tokens, top_k}), weights(DType::f32, {tokens, top_k});
    const DeviceTensor gpu_ids = room(DType::i32, ids->shape());
    const DeviceTensor gpu_weights = room(DType::f32, ids->shape());
    cpu_->moe().route(logits, bias, options, ids, weights);
    gpu_->moe().route(exact(logits), exact(bias), options, gpu_ids, gpu_weights);
    expect_same_integers(gpu_ids, ids, "route");
    expect_equal(gpu_weights, weights, "route's weights");

    const std::int64_t first = 3, local = 11;  // others belong to other ranks
    const HostTensor offsets(DType::i32, {local + 1}), source(DType::i32, {pairs});
    const DeviceTensor gpu_offsets = room(DType::i32, {local + 1});
    const DeviceTensor gpu_source = exact(source);
    const ExpertBatch cpu_batch{offsets, source}, gpu_batch{gpu_offsets, gpu_source};
    cpu_->moe().permute(ids, first, cpu_batch);
    gpu_->moe().permute(gpu_ids, first, gpu_batch);
    expect_same_integers(gpu_offsets, offsets, "permute's offsets");
    expect_same_integers(gpu_source, source, "permute's source");

    std::vector<HostTensor> owners;
    for (int e = 0; e < local; ++e) owners.push_back(random({n, k}, 0.1F));
    const std::vector<Tensor> views(owners.begin(), owners.end());
    auto cpu_experts = cpu_->weights().prepare_grouped(views, 1, WeightEncoding::plain);
    auto gpu_experts = gpu_->weights().prepare_grouped(views, 1, WeightEncoding::plain);
    ASSERT_TRUE(cpu_experts.ok() && gpu_experts.ok());
    const HostTensor x = random({tokens, k}), rows(DType::f32, {pairs, n}),
                     out(DType::f32, {tokens, n});
    cpu_->moe().grouped_linear(**cpu_experts, x, cpu_batch, top_k, true, true, rows);
    const DeviceTensor gpu_rows = exact(HostTensor(DType::f32, {pairs, n}));
    gpu_->moe().grouped_linear(**gpu_experts, activation(x), gpu_batch, top_k, true, true,
                               gpu_rows);
    expect_equal(gpu_rows, rows, "grouped_linear");
    const DeviceTensor gpu_out = room(DType::f32, {tokens, n});
    cpu_->moe().combine(rows, weights, out);
    gpu_->moe().combine(gpu_rows, gpu_weights, gpu_out);
    expect_equal(gpu_out, out, "combine");
  }
}

TEST_P(BothDevices, add_parts_in_the_trees_order_and_gather) {
  if (is_bf16()) GTEST_SKIP() << "partial sums are f32";
  for (const std::int64_t parts : {1, 2, 3, 5, 8}) {
    const HostTensor x = random({parts * 6, 33}), sum(DType::f32, {6, 33});
    cpu_->dense().tree_sum(x, sum);
    const DeviceTensor out = room(DType::f32, {6, 33});
    gpu_->dense().tree_sum(exact(x), out);
    const HostTensor found = back(out);
    for (std::int64_t i = 0; i < sum->elements(); ++i) {
      ASSERT_EQ(found->as<float>()[i], sum->as<float>()[i]) << parts << " parts, element " << i;
    }
  }
  const HostTensor x = random({9, 33}), rows = integers({8, 0, 3, 3}, {4}),
                   chosen(DType::f32, {4, 33});
  cpu_->dense().gather_rows(x, rows, chosen);
  const DeviceTensor out = room(DType::f32, {4, 33});
  gpu_->dense().gather_rows(exact(x), exact(rows), out);
  expect_equal(out, chosen, "gather_rows");
}

}  // namespace
}  // namespace troupe
