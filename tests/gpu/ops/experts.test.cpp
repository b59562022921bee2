// Routing, sorting and grouped GEMMs at many sizes, beside the CPU's.
#include <cstring>

#include <fmt/format.h>

#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

class Experts : public BothDevices {
 protected:
  /// A pass's assignments, sorted on both devices; `ids` [tokens, top_k].
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
    cpu_->moe().permute(ids, first, sorted.cpu);
    const DeviceTensor gpu_ids = exact(ids);
    gpu_->moe().permute(gpu_ids, first, sorted.gpu);
    EXPECT_TRUE(gpu_->stream().synchronize().ok());
    return sorted;
  }

  /// Chooses different experts for each token, out of `from`.
  HostTensor choose(std::int64_t tokens, std::int64_t top_k, std::int64_t from) {
    HostTensor ids(DType::i32, {tokens, top_k});
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::ranges::copy_n(shuffled(from).begin(), top_k, ids->rows(t, 1).as<std::int32_t>());
    }
    return ids;
  }

  /// For rows that went through several GEMMs: relative to a row's largest element.
  void expect_near_rows(const Tensor& device, const Tensor& expected, const std::string& what) {
    const HostTensor found = back(device);
    const std::int64_t width = expected[1];
    for (std::int64_t row = 0; row < expected[0]; ++row) {
      const float* wanted = expected.rows(row, 1).as<float>();
      const float* value = found->rows(row, 1).as<float>();
      float largest = 0.0F;
      for (std::int64_t i = 0; i < width; ++i) largest = std::max(largest, std::abs(wanted[i]));
      for (std::int64_t i = 0; i < width; ++i) {
        ASSERT_LE(std::abs(value[i] - wanted[i]), (is_bf16() ? 2e-2F : 2e-5F) * largest)
            << what << ", row " << row << ", element " << i << ": expected " << wanted[i]
            << ", found " << value[i];
      }
    }
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
  // One token; experts without rows; all rows to two of them; many rows per expert; sizes that are
  // no multiples of a tile, and sizes that tensor cores do not support.
  for (const Case& c :
       {Case{1, 8, 128, 128, 96, 64}, Case{40, 2, 7, 3, 272, 200}, Case{300, 2, 4, 2, 512, 768},
        Case{150, 4, 16, 16, 72, 48}, Case{64, 8, 128, 128, 128, 64}, Case{500, 3, 5, 5, 272, 1032},
        Case{900, 1, 1, 1, 48, 72}, Case{33, 2, 3, 3, 20, 15}}) {
    const std::string what = fmt::format("{} tokens x {} of {} experts of {} x {}", c.tokens,
                                         c.top_k, c.experts, c.n, c.k);
    const std::int64_t assignments = c.tokens * c.top_k;
    const Sorted sorted = sort(choose(c.tokens, c.top_k, c.chosen_from), 0, c.experts);
    const std::vector<HostTensor> owners = matrices(c.experts, c.n, c.k);
    const std::vector<Tensor> views(owners.begin(), owners.end());
    auto on_cpu = cpu_->weights().prepare_grouped(views, 1, WeightEncoding::plain);
    auto on_gpu = gpu_->weights().prepare_grouped(views, 1, WeightEncoding::plain);
    ASSERT_TRUE(on_cpu.ok() && on_gpu.ok());
    const HostTensor x = random({assignments, c.k}), expected(DType::f32, {assignments, c.n});
    const DeviceTensor gpu_x = activation(x);
    for (const auto& [gather, scatter] : {std::pair{true, false}, {false, true}, {true, true}}) {
      cpu_->moe().grouped_linear(**on_cpu, x, sorted.cpu, c.top_k, gather, scatter, expected);
      for (const DType out_dtype : {DType::f32, GetParam()}) {
        const DeviceTensor out = room(out_dtype, {assignments, c.n});
        gpu_->moe().grouped_linear(**on_gpu, gpu_x, sorted.gpu, c.top_k, gather, scatter, out);
        expect_equal(out, expected, what);
      }
    }
    const HostTensor cpu_scratch(DType::f32, {assignments, c.n}),
        gated(DType::f32, {assignments, c.n / 2});
    const DeviceTensor scratch = room(GetParam(), {assignments, c.n});
    const DeviceTensor out = room(GetParam(), {assignments, c.n / 2});
    cpu_->moe().grouped_gate_up(**on_cpu, x, sorted.cpu, c.top_k, cpu_scratch, gated);
    gpu_->moe().grouped_gate_up(**on_gpu, gpu_x, sorted.gpu, c.top_k, scratch, out);
    expect_equal(out, gated, what + ", gated");
  }
}

TEST_P(Experts, multiply_a_row_alike_whoever_shares_the_batch) {
  constexpr std::int64_t experts = 8, top_k = 2, n = 144, k = 328, most = 700;
  const std::vector<HostTensor> owners = matrices(experts, n, k);
  const std::vector<Tensor> views(owners.begin(), owners.end());
  auto weights = gpu_->weights().prepare_grouped(views, 1, WeightEncoding::plain);
  ASSERT_TRUE(weights.ok());
  const HostTensor x = random({most, k}), ids = choose(most, top_k, experts);
  const DeviceTensor gpu_x = activation(x);
  std::vector<float> of_all;
  // Each size has other tiles.
  for (const std::int64_t tokens :
       {most, most / 2, std::int64_t{150}, std::int64_t{40}, std::int64_t{3}, std::int64_t{1}}) {
    const Sorted sorted = sort(ids->rows(0, tokens), 0, experts);
    const DeviceTensor out = room(DType::f32, {tokens * top_k, n});
    gpu_->moe().grouped_linear(**weights, gpu_x->rows(0, tokens), sorted.gpu, top_k, true, true,
                               out);
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
                                                             {513, 1, 7, 2, 3},
                                                             {1024, 16, 128, 0, 128},
                                                             {256, 32, 40, 8, 32},
                                                             {257, 33, 40, 8, 32},
                                                             {1025, 2, 64, 0, 32},
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
    gpu_->moe().count_rows(sorted.gpu, counts);
    gpu_->moe().count_rows(sorted.gpu, counts);
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
      cpu_->moe().route(logits, sigmoid ? bias.view() : no_bias, options, ids, weights);
      gpu_->moe().route(exact(logits), sigmoid ? exact(bias).view() : no_bias, options, gpu_ids,
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
  for (const auto& [tokens, top_k, width] :
       {std::tuple{1, 8, 2048}, {300, 3, 515}, {7, 1, 4}, {256, 8, 2048}, {5, 19, 1032}}) {
    const HostTensor x = random({tokens * top_k, width}), weights = random({tokens, top_k}),
                     expected(DType::f32, {tokens, width});
    cpu_->moe().combine(x, weights, expected);
    const DeviceTensor out = room(GetParam(), {tokens, width});
    const DeviceTensor wide = exact(x), narrow = activation(x);
    for (const Tensor& rows : {wide.view(), narrow.view()}) {
      gpu_->moe().combine(rows, exact(weights), out);
      expect_equal(out, expected, fmt::format("{} x {} of {}", tokens, top_k, width));
    }
  }
}

TEST_P(Experts, sort_the_filled_rows_of_parts) {
  struct Case {
    std::int64_t each, top_k, experts, first, local;
    std::vector<std::int32_t> received_counts;
  };
  for (const Case& c : {Case{4, 2, 8, 0, 8, {1, 0, 4}}, Case{300, 8, 128, 32, 32, {7, 300, 0, 129}},
                        Case{2000, 8, 128, 64, 64, {2000, 1999}}, Case{5, 1, 4, 2, 2, {0, 0}},
                        Case{40, 4, 16, 0, 4, {40, 40, 40, 40, 40, 40, 40, 40}}}) {
    const auto parts = std::ssize(c.received_counts);
    const HostTensor ids = choose(parts * c.each, c.top_k, c.experts);
    const HostTensor received_counts = integers(c.received_counts, {parts});
    const HostTensor offsets(DType::i32, {c.local + 1}), source(DType::i32, {ids->elements()}),
        counts(DType::i64, {c.local});
    const DeviceTensor gpu_offsets = room(DType::i32, {c.local + 1}), gpu_source = exact(source),
                       gpu_counts = exact(counts), gpu_ids = exact(ids),
                       gpu_filled = exact(received_counts);
    cpu_->moe().permute_received(ids, received_counts, c.first, {offsets, source}, counts);
    gpu_->moe().permute_received(gpu_ids, gpu_filled, c.first, {gpu_offsets, gpu_source, 1},
                                 gpu_counts);
    const std::string what = fmt::format("{} parts of {}", parts, c.each);
    expect_same_integers(gpu_offsets, offsets, what + ", offsets");
    const std::int64_t valid = offsets->as<std::int32_t>()[c.local];
    expect_same_integers(gpu_source->rows(0, valid), source->rows(0, valid), what + ", source");
    const HostTensor counted = back(gpu_counts);
    for (std::int64_t e = 0; e < c.local; ++e) {
      ASSERT_EQ(counted->as<std::int64_t>()[e], counts->as<std::int64_t>()[e]) << what << ", " << e;
    }
  }
}

TEST_P(Experts, choose_and_run_those_of_this_rank) {
  struct Case {
    std::int64_t tokens, top_k, experts, first, local, hidden, inner;
  };
  // Few tokens, which have their own kernels, up to their limits and beyond; ranks with all
  // experts, some, and some that no token chooses; sizes that are no multiples of a tile.
  for (const Case& c : {Case{1, 8, 128, 0, 128, 256, 96}, Case{1, 8, 128, 96, 32, 2048, 768},
                        Case{8, 8, 128, 0, 128, 272, 200}, Case{8, 8, 128, 0, 128, 264, 200},
                        Case{5, 2, 7, 3, 4, 64, 8}, Case{8, 1, 1, 0, 1, 40, 344},
                        Case{1, 8, 16, 0, 16, 256, 1032}, Case{6, 4, 16, 0, 16, 136, 1544},
                        Case{3, 4, 64, 60, 1, 128, 64}, Case{8, 8, 16, 8, 8, 2048, 192},
                        Case{9, 8, 32, 8, 8, 256, 64}, Case{32, 8, 64, 0, 64, 64, 32},
                        Case{33, 4, 300, 100, 100, 72, 40}, Case{200, 6, 16, 4, 8, 136, 80},
                        Case{256, 8, 128, 0, 128, 64, 16}, Case{257, 8, 128, 32, 32, 64, 16},
                        Case{1000, 2, 200, 0, 200, 64, 16}, Case{1025, 8, 64, 0, 64, 64, 16}}) {
    const std::string what = fmt::format("{} tokens x {} of {}, {} from {}, {} x {}", c.tokens,
                                         c.top_k, c.experts, c.local, c.first, c.hidden, c.inner);
    const RouterOptions options{.top_k = c.top_k, .normalize = true};
    const std::int64_t assignments = c.tokens * c.top_k;
    const HostTensor logits = random({c.tokens, c.experts}), x = random({c.tokens, c.hidden});
    const HostTensor ids(DType::i32, {c.tokens, c.top_k}), weights(DType::f32, ids->shape()),
        offsets(DType::i32, {c.local + 1}), source(DType::i32, {assignments}),
        counts(DType::i64, {c.local}), gate_up(DType::f32, {assignments, 2 * c.inner}),
        activated(DType::f32, {assignments, c.inner}), rows(DType::f32, {assignments, c.hidden}),
        expected(DType::f32, {c.tokens, c.hidden});
    const DeviceTensor gpu_ids = room(DType::i32, ids->shape()),
                       gpu_weights = room(DType::f32, ids->shape()),
                       gpu_offsets = room(DType::i32, {c.local + 1}), gpu_source = exact(source),
                       gpu_counts = exact(counts), gpu_gate_up = room(GetParam(), gate_up->shape()),
                       gpu_activated = room(GetParam(), activated->shape()),
                       gpu_rows = room(GetParam(), rows->shape()),
                       gpu_out = room(DType::f32, expected->shape()),
                       gpu_narrow = room(GetParam(), expected->shape());
    const DeviceTensor gpu_logits = exact(logits), gpu_x = activation(x);
    const ExpertBatch on_cpu{offsets, source}, on_gpu{gpu_offsets, gpu_source};
    const ExpertChoices cpu_choices{ids, weights, c.first},
        gpu_choices{gpu_ids, gpu_weights, c.first};
    cpu_->moe().route_and_permute(logits, {}, options, cpu_choices, on_cpu, counts);
    gpu_->moe().route_and_permute(gpu_logits, {}, options, gpu_choices, on_gpu, gpu_counts);
    expect_same_integers(gpu_ids, ids, what + ", ids");
    expect_equal(gpu_weights, weights, what + ", weights");
    expect_same_integers(gpu_offsets, offsets, what + ", offsets");
    const std::int64_t valid = offsets->as<std::int32_t>()[c.local];
    expect_same_integers(gpu_source->rows(0, valid), source->rows(0, valid), what + ", source");
    const HostTensor counted = back(gpu_counts);
    for (std::int64_t e = 0; e < c.local; ++e) {
      ASSERT_EQ(counted->as<std::int64_t>()[e], counts->as<std::int64_t>()[e]) << what << ", " << e;
    }

    const std::vector<HostTensor> uppers = matrices(c.local, 2 * c.inner, c.hidden);
    const std::vector<HostTensor> downs = matrices(c.local, c.hidden, c.inner);
    const std::vector<Tensor> upper_views(uppers.begin(), uppers.end()),
        down_views(downs.begin(), downs.end());
    auto cpu_upper = cpu_->weights().prepare_grouped(upper_views, 1, WeightEncoding::plain);
    auto gpu_upper = gpu_->weights().prepare_grouped(upper_views, 1, WeightEncoding::plain);
    auto cpu_down = cpu_->weights().prepare_grouped(down_views, 1, WeightEncoding::plain);
    auto gpu_down = gpu_->weights().prepare_grouped(down_views, 1, WeightEncoding::plain);
    ASSERT_TRUE(cpu_upper.ok() && gpu_upper.ok() && cpu_down.ok() && gpu_down.ok());
    cpu_->moe().expert_mlp(**cpu_upper, **cpu_down, x, cpu_choices, on_cpu,
                           {gate_up, activated, rows}, expected);
    // As a pass does it: nothing waits between choosing and computing.
    gpu_->moe().route_and_permute(gpu_logits, {}, options, gpu_choices, on_gpu, gpu_counts);
    for (const Tensor& out : {gpu_out.view(), gpu_narrow.view()}) {
      gpu_->moe().expert_mlp(**gpu_upper, **gpu_down, gpu_x, gpu_choices, on_gpu,
                             {gpu_gate_up, gpu_activated, gpu_rows}, out);
      expect_near_rows(out, expected, what);
    }
  }
}

TEST_P(Experts, add_the_mlp_that_few_tokens_share) {
  struct Case {
    std::int64_t tokens, top_k, experts, first, local, hidden, inner, parts;
    bool fits = true;
  };
  for (const Case& c :
       {Case{1, 6, 64, 0, 64, 2048, 176, 2}, Case{1, 2, 5, 0, 5, 48, 24, 1},
        Case{8, 6, 64, 0, 64, 272, 200, 2}, Case{5, 3, 8, 2, 4, 256, 344, 3},
        Case{3, 2, 4, 3, 1, 2064, 40, 5}, Case{7, 8, 16, 0, 16, 512, 1408, 1},
        Case{8, 8, 16, 0, 16, 64, 32, 1, false}, Case{9, 2, 4, 0, 4, 64, 32, 1, false}}) {
    const std::string what =
        fmt::format("{} tokens x {} of {}, {} from {}, {} x {}, {} shared", c.tokens, c.top_k,
                    c.experts, c.local, c.first, c.hidden, c.inner, c.parts);
    const RouterOptions options{.top_k = c.top_k, .normalize = true};
    const std::int64_t assignments = c.tokens * c.top_k, shared_inner = c.parts * c.inner;
    const HostTensor logits = random({c.tokens, c.experts}), x = random({c.tokens, c.hidden});
    const HostTensor ids(DType::i32, {c.tokens, c.top_k}), weights(DType::f32, ids->shape()),
        offsets(DType::i32, {c.local + 1}), source(DType::i32, {assignments}),
        counts(DType::i64, {c.local}), gate_up(DType::f32, {assignments, 2 * c.inner}),
        activated(DType::f32, {assignments, c.inner}), rows(DType::f32, {assignments, c.hidden}),
        shared_gate_up(DType::f32, {c.tokens, 2 * shared_inner}),
        shared_activated(DType::f32, {c.tokens, shared_inner}),
        shared_rows(DType::f32, {c.tokens, c.hidden}), expected(DType::f32, {c.tokens, c.hidden});
    const std::vector<HostTensor> uppers = matrices(c.local, 2 * c.inner, c.hidden);
    const std::vector<HostTensor> downs = matrices(c.local, c.hidden, c.inner);
    const std::vector<Tensor> upper_views(uppers.begin(), uppers.end()),
        down_views(downs.begin(), downs.end());
    const HostTensor shared_upper = random({2 * shared_inner, c.hidden}, 0.1F),
                     shared_down = random({c.hidden, shared_inner}, 0.1F);
    auto cpu_upper = cpu_->weights().prepare_grouped(upper_views, 1, WeightEncoding::plain);
    auto gpu_upper = gpu_->weights().prepare_grouped(upper_views, 1, WeightEncoding::plain);
    auto cpu_down = cpu_->weights().prepare_grouped(down_views, 1, WeightEncoding::plain);
    auto gpu_down = gpu_->weights().prepare_grouped(down_views, 1, WeightEncoding::plain);
    auto cpu_shared_upper = cpu_->weights().prepare(shared_upper, 1, WeightEncoding::plain);
    auto gpu_shared_upper = gpu_->weights().prepare(shared_upper, 1, WeightEncoding::plain);
    auto cpu_shared_down = cpu_->weights().prepare(shared_down, 1, WeightEncoding::plain);
    auto gpu_shared_down = gpu_->weights().prepare(shared_down, 1, WeightEncoding::plain);
    ASSERT_TRUE(cpu_upper.ok() && gpu_upper.ok() && cpu_down.ok() && gpu_down.ok());
    ASSERT_TRUE(cpu_shared_upper.ok() && gpu_shared_upper.ok());
    ASSERT_TRUE(cpu_shared_down.ok() && gpu_shared_down.ok());
    const SharedMlp shared{gpu_shared_upper->get(), gpu_shared_down->get()};
    const bool takes = gpu_->moe().adds_shared_mlp(shared, **gpu_down, c.tokens, c.top_k);
    ASSERT_EQ(takes, is_bf16() && c.fits) << what;
    if (!takes) continue;

    const ExpertChoices choices{ids, weights, c.first};
    const ExpertBatch batch{offsets, source};
    cpu_->moe().route_and_permute(logits, {}, options, choices, batch, counts);
    cpu_->moe().expert_mlp(**cpu_upper, **cpu_down, x, choices, batch, {gate_up, activated, rows},
                           expected);
    cpu_->dense().linear_gate_up(**cpu_shared_upper, x, shared_gate_up, shared_activated);
    cpu_->dense().linear(**cpu_shared_down, shared_activated, shared_rows);
    cpu_->dense().add(expected, shared_rows);

    const DeviceTensor gpu_ids = room(DType::i32, ids->shape()),
                       gpu_weights = room(DType::f32, ids->shape()),
                       gpu_offsets = room(DType::i32, {c.local + 1}), gpu_source = exact(source),
                       gpu_counts = exact(counts), gpu_gate_up = room(GetParam(), gate_up->shape()),
                       gpu_activated = room(GetParam(), activated->shape()),
                       gpu_rows = room(GetParam(), rows->shape()),
                       gpu_shared = room(GetParam(), shared_activated->shape()),
                       gpu_out = room(DType::f32, expected->shape()),
                       gpu_narrow = room(GetParam(), expected->shape());
    const DeviceTensor gpu_logits = exact(logits), gpu_x = activation(x);
    const ExpertChoices gpu_choices{gpu_ids, gpu_weights, c.first};
    const ExpertBatch on_gpu{gpu_offsets, gpu_source};
    gpu_->moe().route_and_permute(gpu_logits, {}, options, gpu_choices, on_gpu, gpu_counts);
    for (const Tensor& out : {gpu_out.view(), gpu_narrow.view()}) {
      gpu_->moe().expert_mlp(**gpu_upper, **gpu_down, gpu_x, gpu_choices, on_gpu,
                             {gpu_gate_up, gpu_activated, gpu_rows, gpu_shared}, out, shared);
      expect_near_rows(out, expected, what);
    }
  }
}

TEST_P(Experts, give_few_tokens_the_same_rows_whoever_shares_the_batch) {
  if (!is_bf16()) GTEST_SKIP() << "f32 has one way for all";
  constexpr std::int64_t most = 8, top_k = 8, experts = 16, hidden = 272, inner = 72;
  const RouterOptions options{.top_k = top_k, .normalize = true};
  const DeviceTensor logits = exact(random({most, experts})),
                     x = activation(random({most, hidden}));
  const std::vector<HostTensor> uppers = matrices(experts, 2 * inner, hidden);
  const std::vector<HostTensor> downs = matrices(experts, hidden, inner);
  auto upper = gpu_->weights().prepare_grouped(std::vector<Tensor>(uppers.begin(), uppers.end()), 1,
                                               WeightEncoding::plain);
  auto down = gpu_->weights().prepare_grouped(std::vector<Tensor>(downs.begin(), downs.end()), 1,
                                              WeightEncoding::plain);
  ASSERT_TRUE(upper.ok() && down.ok());
  std::vector<float> of_all;
  for (std::int64_t tokens = most; tokens > 0; --tokens) {
    const std::int64_t assignments = tokens * top_k;
    const DeviceTensor ids = room(DType::i32, {tokens, top_k}),
                       weights = room(DType::f32, {tokens, top_k}),
                       offsets = room(DType::i32, {experts + 1}),
                       source = room(DType::i32, {assignments}),
                       counts = room(DType::i64, {experts}),
                       gate_up = room(GetParam(), {assignments, 2 * inner}),
                       activated = room(GetParam(), {assignments, inner}),
                       rows = room(GetParam(), {assignments, hidden}),
                       out = room(DType::f32, {tokens, hidden});
    const ExpertChoices choices{ids, weights};
    const ExpertBatch batch{offsets, source};
    gpu_->moe().route_and_permute(logits->rows(0, tokens), {}, options, choices, batch, counts);
    gpu_->moe().expert_mlp(**upper, **down, x->rows(0, tokens), choices, batch,
                           {gate_up, activated, rows}, out);
    const HostTensor found = back(out);
    const auto values = found->span<float>();
    if (of_all.empty()) of_all.assign(values.begin(), values.end());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], of_all[i]) << tokens << " tokens, element " << i;
    }
  }
}

TEST_P(Experts, route_tokens_as_a_product_and_a_choice_do) {
  struct Case {
    std::int64_t tokens, experts, first, local, top_k, hidden;
  };
  for (const Case& c :
       {Case{1, 128, 0, 128, 8, 2048}, Case{8, 128, 64, 32, 8, 2048}, Case{3, 60, 0, 60, 4, 264},
        Case{5, 7, 2, 4, 2, 64}, Case{8, 16, 0, 16, 6, 4096}, Case{9, 128, 0, 128, 8, 256}}) {
    const std::string what =
        fmt::format("{} tokens of {}, {} of {} experts", c.tokens, c.hidden, c.top_k, c.experts);
    const RouterOptions options{.top_k = c.top_k, .normalize = true};
    auto router =
        gpu_->weights().prepare(random({c.experts, c.hidden}, 0.05F), 1, WeightEncoding::plain);
    ASSERT_TRUE(router.ok());
    const DeviceTensor x = activation(random({c.tokens, c.hidden})),
                       bias = exact(random({c.experts}, 0.1F)),
                       logits = room(DType::f32, {c.tokens, c.experts});
    std::vector<HostTensor> found;
    for (const bool at_once : {false, true}) {
      const DeviceTensor ids = room(DType::i32, {c.tokens, c.top_k}),
                         weights = room(DType::f32, ids->shape()),
                         offsets = room(DType::i32, {c.local + 1}),
                         source = exact(HostTensor(DType::i32, {c.tokens * c.top_k})),
                         counts = exact(HostTensor(DType::i64, {c.local}));
      const ExpertChoices choices{ids, weights, c.first};
      const ExpertBatch batch{offsets, source};
      if (at_once) {
        gpu_->moe().route_tokens(**router, x, logits, bias, options, choices, batch, counts);
      } else {
        gpu_->dense().linear(**router, x, logits);
        gpu_->moe().route_and_permute(logits, bias, options, choices, batch, counts);
      }
      for (const Tensor& each : {ids.view(), weights.view(), offsets.view(), counts.view()}) {
        found.push_back(back(each));
      }
      found.push_back(back(source));
    }
    for (std::size_t i = 0; i < found.size() / 2; ++i) {
      const Tensor apart = found[i], together = found[i + found.size() / 2];
      const std::string which =
          fmt::format("{}, result {} of ids, weights, offsets, counts, source", what, i);
      if (apart.dtype() != DType::f32) {
        EXPECT_EQ(std::memcmp(apart.data(), together.data(), apart.bytes()), 0) << which;
        continue;
      }
      // The GEMM may add up k in other chains.
      for (std::int64_t j = 0; j < apart.elements(); ++j) {
        EXPECT_NEAR(together.as<float>()[j], apart.as<float>()[j], 1e-5F) << which;
      }
    }
  }
}

}  // namespace
}  // namespace troupe
