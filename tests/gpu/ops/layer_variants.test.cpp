// The operations that only some families need, on the GPU beside the CPU.
#include <gtest/gtest.h>

#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

class LayerVariants : public BothDevices {};

INSTANTIATE_TEST_SUITE_P(Dtypes, LayerVariants, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(LayerVariants, activate) {
  for (const Activation kind : {Activation::gelu_tanh_gated, Activation::clamped_gated,
                                Activation::gelu_tanh, Activation::gelu}) {
    const std::int64_t inner = 23, width = is_gated(kind) ? 2 * inner : inner;
    const HostTensor x = random({7, width}, 4.0F), expected(DType::f32, {7, inner});
    cpu_->dense().activate(x, kind, expected);
    const DeviceTensor out = room(GetParam(), {7, inner});
    gpu_->dense().activate(activation(x), kind, out);
    expect_equal(out, expected, "activation " + std::to_string(static_cast<int>(kind)));
  }
}

TEST_P(LayerVariants, normalise_by_mean_and_variance) {
  for (const auto& [rows, width] : {std::pair{1, 16}, {3, 200}, {65, 1024}}) {
    const HostTensor x = random({rows, width}), weight = random({width}), bias = random({width});
    const HostTensor expected(DType::f32, x->shape());
    const DeviceTensor out = room(GetParam(), x->shape());
    cpu_->dense().layer_norm(x, weight, bias, 1e-5F, expected);
    gpu_->dense().layer_norm(activation(x), exact(weight), exact(bias), 1e-5F, out);
    expect_equal(out, expected, "with a bias");
    cpu_->dense().layer_norm(x, weight, Tensor(), 1e-5F, expected);
    gpu_->dense().layer_norm(activation(x), exact(weight), Tensor(), 1e-5F, out);
    expect_equal(out, expected, "without a bias");
  }
}

TEST_P(LayerVariants, scale_and_cap) {
  for (const float cap : {0.0F, 3.0F}) {
    const HostTensor x = random({5, 77}, 4.0F);
    const DeviceTensor gpu_x = activation(x);
    cpu_->dense().scale(x, 1.5F, cap);
    gpu_->dense().scale(gpu_x, 1.5F, cap);
    expect_equal(gpu_x, x, "scale");
  }
}

TEST_P(LayerVariants, gate_rows) {
  const HostTensor x = random({5, 77}), input = random({5, 64}), weight = random({64}, 0.2F);
  const DeviceTensor gpu_x = activation(x);
  cpu_->dense().gate_rows(x, input, weight);
  gpu_->dense().gate_rows(gpu_x, activation(input), exact(weight));
  expect_equal(gpu_x, x, "gate_rows");
}

TEST_P(LayerVariants, normalise_all_heads_of_a_token_together) {
  // One of two ranks, which have the same KV heads.
  const AttentionShape shape{.heads = 4, .kv_heads = 2, .head_dim = 40};
  const HostTensor qkv = random({6, 8 * 40}), q_weight = random({160}), k_weight = random({80});
  const HostTensor sums(DType::f32, {6, 6});
  const DeviceTensor gpu_qkv = activation(qkv), gpu_sums = room(DType::f32, {6, 6});
  cpu_->attention().square_sums(qkv, shape, sums);
  gpu_->attention().square_sums(gpu_qkv, shape, gpu_sums);
  expect_equal(gpu_sums, sums, "square_sums");
  const HostTensor all = random({12, 6});
  for (float& value : all->span<float>()) value = 40.0F + std::abs(value);
  ProjectionNorm norm{.square_sums = all,
                      .ranks = 2,
                      .kv_copies = 2,
                      .q_weight = q_weight,
                      .k_weight = k_weight,
                      .eps = 1e-6F};
  cpu_->attention().norm_projections(qkv, shape, norm);
  const DeviceTensor gpu_all = exact(all), gpu_q = exact(q_weight), gpu_k = exact(k_weight);
  norm.square_sums = gpu_all;
  norm.q_weight = gpu_q;
  norm.k_weight = gpu_k;
  gpu_->attention().norm_projections(gpu_qkv, shape, norm);
  expect_equal(gpu_qkv, qkv, "norm_projections");
}

TEST_P(LayerVariants, add_biases_of_experts) {
  // Expert 1 has no rows; two rows are no local expert's.
  const HostTensor offsets = integers({0, 3, 3, 6}, {4}), source = integers(shuffled(8), {8});
  const HostTensor x = random({8, 33}), bias = random({3, 33});
  const DeviceTensor gpu_x = activation(x), gpu_offsets = exact(offsets),
                     gpu_source = exact(source);
  cpu_->moe().add_expert_bias(x, {offsets, source}, bias);
  gpu_->moe().add_expert_bias(gpu_x, {gpu_offsets, gpu_source}, exact(bias));
  expect_equal(gpu_x, x, "add_expert_bias");

  const HostTensor ids = integers({4, 0, 2, 1, 3, 4}, {3, 2}), weights = random({3, 2});
  const HostTensor table = random({5, 33}), out = random({3, 33});
  const DeviceTensor gpu_out = activation(out);
  cpu_->moe().add_chosen_bias(ids, weights, table, out);
  gpu_->moe().add_chosen_bias(exact(ids), exact(weights), exact(table), gpu_out);
  expect_equal(gpu_out, out, "add_chosen_bias");
}

TEST_P(LayerVariants, choose_among_groups_by_their_best_score) {
  const HostTensor logits = random({9, 16});
  const RouterOptions options{
      .top_k = 3, .groups = 4, .top_groups = 2, .best_score_groups = true, .scale = 2.0F};
  const HostTensor ids(DType::i32, {9, 3}), weights(DType::f32, {9, 3});
  cpu_->moe().route(logits, Tensor(), options, ids, weights);
  const DeviceTensor gpu_ids = room(DType::i32, {9, 3}), gpu_weights = room(DType::f32, {9, 3});
  gpu_->moe().route(exact(logits), Tensor(), options, gpu_ids, gpu_weights);
  expect_same_integers(gpu_ids, ids, "ids");
  expect_equal(gpu_weights, weights, "weights");
}

}  // namespace
}  // namespace troupe
