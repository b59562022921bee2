// Routing, sorting and the experts' products at many sizes, beside the CPU's.
#include <fmt/format.h>

#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

class Experts : public BothDevices {
 protected:
  /// A pass's pairs sorted on either device; `ids` [tokens, top_k].
  struct Sorted {
    HostTensor offsets, source;
    DeviceTensor gpu_offsets, gpu_source;
    ExpertBatch cpu, gpu;
  };
  Sorted sort(const Tensor& ids, std::int64_t first, std::int64_t local) {
    Sorted sorted{HostTensor(DType::i32, {local + 1}),
                  HostTensor(DType::i32, {ids.elements()}),
                  room(DType::i32, {local + 1}),
                  {},
                  {},
                  {}};
    sorted.gpu_source = exact(sorted.source);
    sorted.cpu = {sorted.offsets, sorted.source};
    sorted.gpu = {sorted.gpu_offsets, sorted.gpu_source};
    cpu_->permute(ids, first, sorted.cpu);
    const DeviceTensor gpu_ids = exact(ids);
    gpu_->permute(gpu_ids, first, sorted.gpu);
    EXPECT_TRUE(gpu_->synchronize().ok());
    return sorted;
  }

  /// Different experts for each token, of `from` alone.
  HostTensor choose(std::int64_t tokens, std::int64_t top_k, std::int64_t from) {
    HostTensor ids(DType::i32, {tokens, top_k});
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::ranges::copy_n(shuffled(from).begin(), top_k, ids->rows(t, 1).as<std::int32_t>());
    }
    return ids;
  }

  std::vector<HostTensor> matrices(std::int64_t experts, std::int64_t n, std::int64_t k) {
    std::vector<HostTensor> all;
    for (std::int64_t e = 0; e < experts; ++e) all.push_back(random({n, k}, 0.1F));
    return all;
  }
};

INSTANTIATE_TEST_SUITE_P(Dtypes, Experts, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(Experts, multiply_rows_at_odd_sizes) {
  struct Case {
    std::int64_t tokens, top_k, experts, chosen_from, n, k;
  };
  // One token; experts without rows; all rows to two of them; many rows an expert; sizes that are
  // no multiples of a tile, and such as tensor cores do not take.
  for (const Case& c :
       {Case{1, 8, 128, 128, 96, 64}, Case{40, 2, 7, 3, 272, 200}, Case{300, 2, 4, 2, 512, 768},
        Case{150, 4, 16, 16, 72, 48}, Case{64, 8, 128, 128, 128, 64}, Case{500, 3, 5, 5, 272, 1032},
        Case{900, 1, 1, 1, 48, 72}, Case{33, 2, 3, 3, 20, 15}}) {
    const std::string what = fmt::format("{} tokens x {} of {} experts of {} x {}", c.tokens,
                                         c.top_k, c.experts, c.n, c.k);
    const std::int64_t pairs = c.tokens * c.top_k;
    const Sorted sorted = sort(choose(c.tokens, c.top_k, c.chosen_from), 0, c.experts);
    const std::vector<HostTensor> owners = matrices(c.experts, c.n, c.k);
    const std::vector<Tensor> views(owners.begin(), owners.end());
    auto on_cpu = cpu_->prepare_grouped(views, 1);
    auto on_gpu = gpu_->prepare_grouped(views, 1);
    ASSERT_TRUE(on_cpu.ok() && on_gpu.ok());
    const HostTensor x = random({pairs, c.k}), expected(DType::f32, {pairs, c.n});
    const DeviceTensor gpu_x = activation(x);
    for (const auto& [gather, scatter] : {std::pair{true, false}, {false, true}, {true, true}}) {
      cpu_->grouped_linear(**on_cpu, x, sorted.cpu, c.top_k, gather, scatter, expected);
      for (const DType out_dtype : {DType::f32, GetParam()}) {
        const DeviceTensor out = room(out_dtype, {pairs, c.n});
        gpu_->grouped_linear(**on_gpu, gpu_x, sorted.gpu, c.top_k, gather, scatter, out);
        expect_equal(out, expected, what);
      }
    }
    const HostTensor cpu_scratch(DType::f32, {pairs, c.n}), gated(DType::f32, {pairs, c.n / 2});
    const DeviceTensor scratch = room(GetParam(), {pairs, c.n});
    const DeviceTensor out = room(GetParam(), {pairs, c.n / 2});
    cpu_->grouped_gate_up(**on_cpu, x, sorted.cpu, c.top_k, cpu_scratch, gated);
    gpu_->grouped_gate_up(**on_gpu, gpu_x, sorted.gpu, c.top_k, scratch, out);
    expect_equal(out, gated, what + ", gated");
  }
}

TEST_P(Experts, multiply_a_row_alike_whoever_shares_the_batch) {
  constexpr std::int64_t experts = 8, top_k = 2, n = 144, k = 328, most = 700;
  const std::vector<HostTensor> owners = matrices(experts, n, k);
  const std::vector<Tensor> views(owners.begin(), owners.end());
  auto weights = gpu_->prepare_grouped(views, 1);
  ASSERT_TRUE(weights.ok());
  const HostTensor x = random({most, k}), ids = choose(most, top_k, experts);
  const DeviceTensor gpu_x = activation(x);
  std::vector<float> of_all;
  // Each size has other tiles.
  for (const std::int64_t tokens :
       {most, most / 2, std::int64_t{150}, std::int64_t{40}, std::int64_t{3}, std::int64_t{1}}) {
    const Sorted sorted = sort(ids->rows(0, tokens), 0, experts);
    const DeviceTensor out = room(DType::f32, {tokens * top_k, n});
    gpu_->grouped_linear(**weights, gpu_x->rows(0, tokens), sorted.gpu, top_k, true, true, out);
    const HostTensor found = back(out);
    const auto values = found->span<float>();
    if (of_all.empty()) of_all.assign(values.begin(), values.end());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], of_all[i]) << tokens << " tokens, element " << i;
    }
  }
}

TEST_P(Experts, sort_pairs_of_local_experts_in_order) {
  for (const auto& [tokens, top_k, experts, first, local] : {std::tuple{1, 1, 4, 0, 4},
                                                             {1, 8, 128, 0, 128},
                                                             {9, 8, 128, 32, 32},
                                                             {300, 8, 128, 0, 128},
                                                             {70, 3, 300, 150, 150},
                                                             {5000, 8, 128, 0, 128},
                                                             {17000, 2, 4, 1, 3}}) {
    const HostTensor ids = choose(tokens, top_k, experts);
    const Sorted sorted = sort(ids, first, local);
    const std::string what = fmt::format("{} tokens x {} of {} experts, {} from {}", tokens, top_k,
                                         experts, local, first);
    expect_same_integers(sorted.gpu_offsets, sorted.offsets, what + ", offsets");
    const std::int64_t valid = sorted.offsets->as<std::int32_t>()[local];
    expect_same_integers(sorted.gpu_source->rows(0, valid), sorted.source->rows(0, valid),
                         what + ", source");
    const DeviceTensor counts = exact(HostTensor(DType::i64, {local}));
    gpu_->count_rows(sorted.gpu, counts);
    gpu_->count_rows(sorted.gpu, counts);
    const HostTensor counted = back(counts);
    for (std::int64_t e = 0; e < local; ++e) {
      const std::int32_t* offsets = sorted.offsets->as<std::int32_t>();
      ASSERT_EQ(counted->as<std::int64_t>()[e], 2 * (offsets[e + 1] - offsets[e]))
          << what << ", " << e;
    }
  }
}

TEST_P(Experts, route_whatever_the_number_of_experts) {
  for (const std::int64_t experts : {4, 60, 128, 200, 256, 300}) {
    for (const bool sigmoid : {false, true}) {
      constexpr std::int64_t tokens = 37;
      const RouterOptions options{
          .top_k = 4, .normalize = sigmoid, .sigmoid = sigmoid, .scale = sigmoid ? 2.5F : 1.0F};
      const HostTensor logits = random({tokens, experts}), bias = random({experts}, 0.1F);
      logits->as<float>()[1] = logits->as<float>()[3] = 4.0F;  // a tie
      logits->rows(5, 1).as<float>()[2] = sigmoid ? std::nanf("") : -INFINITY;
      const HostTensor ids(DType::i32, {tokens, 4}), weights(DType::f32, {tokens, 4});
      const DeviceTensor gpu_ids = room(DType::i32, ids->shape());
      const DeviceTensor gpu_weights = room(DType::f32, ids->shape());
      const Tensor no_bias;
      cpu_->route(logits, sigmoid ? bias.view() : no_bias, options, ids, weights);
      gpu_->route(exact(logits), sigmoid ? exact(bias).view() : no_bias, options, gpu_ids,
                  gpu_weights);
      const std::string what = fmt::format("{} experts, sigmoid {}", experts, sigmoid);
      expect_same_integers(gpu_ids, ids, what);
      // The weights of a row with a NaN may be NaN.
      expect_equal(gpu_weights->rows(0, 5), weights->rows(0, 5), what);
      expect_equal(gpu_weights->rows(6, tokens - 6), weights->rows(6, tokens - 6), what);
    }
  }
}

TEST_P(Experts, combine_rows_of_any_width) {
  for (const auto& [tokens, top_k, width] : {std::tuple{1, 8, 2048}, {300, 3, 515}, {7, 1, 4}}) {
    const HostTensor x = random({tokens * top_k, width}), weights = random({tokens, top_k}),
                     expected(DType::f32, {tokens, width});
    cpu_->combine(x, weights, expected);
    const DeviceTensor out = room(GetParam(), {tokens, width});
    const DeviceTensor wide = exact(x), narrow = activation(x);
    for (const Tensor& rows : {wide.view(), narrow.view()}) {
      gpu_->combine(rows, exact(weights), out);
      expect_equal(out, expected, fmt::format("{} x {} of {}", tokens, top_k, width));
    }
  }
}

}  // namespace
}  // namespace troupe
