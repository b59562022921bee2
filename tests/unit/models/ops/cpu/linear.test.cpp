#include <algorithm>
#include <cmath>

#include "tests/unit/models/ops/cpu/ops_fixture.hpp"

namespace troupe {
namespace {

HostTensor multiply(Ops& ops, const Tensor& weight, const Tensor& x, int segments = 1) {
  auto linear = ops.weights().prepare(weight, segments, WeightEncoding::plain);
  EXPECT_TRUE(linear.ok());
  HostTensor out = floats({x[0], weight[0]});
  ops.dense().linear(**linear, x, out);
  return out;
}

/// The contract, literally: a chain of FMAs per segment, then the tree.
float chain_and_tree(const float* w, const float* x, std::int64_t k, int segments) {
  if (segments > 1) {
    return chain_and_tree(w, x, k / 2, segments / 2) +
           chain_and_tree(w + k / 2, x + k / 2, k / 2, segments / 2);
  }
  float sum = 0;
  for (std::int64_t i = 0; i < k; ++i) sum = std::fma(x[i], w[i], sum);
  return sum;
}

TEST(Linear, agrees_with_double_precision_on_odd_shapes) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const std::int64_t m = random.integer(1, 70), n = random.integer(1, 150),
                       k = random.integer(1, 600);
    const HostTensor weight = random.normal_bf16({n, k}, 1 / std::sqrt(float(k)));
    const HostTensor x = random.normal({m, k});
    auto ops = make_ops(2);
    expect_near(multiply(*ops, weight, x), product(widened(weight), x), 2e-6);
  }
}

TEST(Linear, is_a_chain_of_fmas_per_segment_and_a_tree_over_segments) {
  for (int segments : {1, 2, 4, 8}) {
    for (std::int64_t m : {1, 2, 3, 5, 14, 15, 50}) {
      SCOPED_TRACE(testing::Message() << segments << " segments, " << m << " rows");
      Random random(7);
      const std::int64_t n = 97, k = 8 * 88;
      const HostTensor weight = random.normal({n, k}), x = random.normal({m, k});
      for (const CpuIsa isa : supported_isas()) {
        auto ops = make_ops(1, DType::f32, isa);
        const HostTensor out = multiply(*ops, weight, x, segments);
        for (std::int64_t i = 0; i < m * n; ++i) {
          ASSERT_EQ(out->as<float>()[i], chain_and_tree(weight->as<float>() + i % n * k,
                                                        x->as<float>() + i / n * k, k, segments))
              << "row " << i / n << ", column " << i % n;
        }
      }
    }
  }
}

TEST(Linear, gives_a_row_the_same_bits_in_every_batch_and_place) {
  Random random(11);
  const std::int64_t n = 80, k = 300;
  const HostTensor weight = random.normal_bf16({n, k}), x = random.normal({64, k});
  for (int segments : {1, 4}) {
    auto ops = make_ops();
    const HostTensor all = multiply(*ops, weight, x, segments);
    for (std::int64_t m = 1; m <= 64; ++m) {
      SCOPED_TRACE(testing::Message() << m << " rows");
      expect_same_bits(multiply(*ops, weight, x->rows(64 - m, m), segments), all->rows(64 - m, m));
    }
    HostTensor reversed = floats({64, k});
    for (int i = 0; i < 64; ++i) {
      std::copy_n(x->as<float>() + i * k, k, reversed->as<float>() + (63 - i) * k);
    }
    const HostTensor back = multiply(*ops, weight, reversed, segments);
    for (int i = 0; i < 64; ++i) expect_same_bits(back->rows(63 - i, 1), all->rows(i, 1));
  }
}

TEST(Linear, gives_the_same_bits_on_any_number_of_threads) {
  Random random(13);
  for (std::int64_t n : {32, 100, 512, 1000}) {
    const HostTensor weight = random.normal_bf16({n, 512});
    for (std::int64_t m : {1, 7, 100}) {
      const HostTensor x = random.normal({m, 512});
      auto one = make_ops(1);
      const HostTensor expected = multiply(*one, weight, x, 8);
      for (int threads : {2, 3}) {
        SCOPED_TRACE(testing::Message() << threads << " threads, n " << n << ", m " << m);
        auto ops = make_ops(threads);
        expect_same_bits(multiply(*ops, weight, x, 8), expected);
      }
    }
  }
}

TEST(Linear, gives_halves_of_n_the_bits_of_the_whole) {
  Random random(17);
  const HostTensor weight = random.normal_bf16({176, 200}), x = random.normal({33, 200});
  auto ops = make_ops(2);
  const HostTensor whole = multiply(*ops, weight, x);
  for (int half : {0, 1}) {
    const HostTensor part = multiply(*ops, weight->rows(half * 88, 88), x);
    expect_same_bits(part, columns_of(whole, half * 88, 88));
  }
}

TEST(Linear, gives_ranks_that_share_k_partial_sums_whose_tree_is_the_whole) {
  Random random(19);
  const std::int64_t m = 20, n = 64, k = 704;
  const HostTensor weight = random.normal({n, k}), x = random.normal({m, k});
  auto ops = make_ops();
  const HostTensor whole = multiply(*ops, weight, x, 8);
  for (int ranks : {2, 4}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    std::vector<HostTensor> parts;
    for (int r = 0; r < ranks; ++r) {
      const std::int64_t width = k / ranks;
      parts.push_back(multiply(*ops, columns_of(weight, r * width, width),
                               columns_of(x, r * width, width), 8 / ranks));
    }
    for (int distance = 1; distance < ranks; distance *= 2) {
      for (int r = 0; r < ranks; r += 2 * distance) {
        for (std::int64_t i = 0; i < m * n; ++i) {
          parts[r]->as<float>()[i] += parts[r + distance]->as<float>()[i];
        }
      }
    }
    expect_same_bits(parts[0], whole);
  }
}

TEST(Linear, gives_bf16_weights_the_bits_of_the_same_weights_in_f32) {
  Random random(23);
  for (std::int64_t m : {1, 2, 3, 4, 9, 30, 60}) {
    const HostTensor weight = random.normal_bf16({111, 333}), x = random.normal({m, 333});
    for (const CpuIsa isa : supported_isas()) {
      auto ops = make_ops(2, DType::f32, isa);
      expect_same_bits(multiply(*ops, weight, x), multiply(*ops, widened(weight), x));
    }
  }
}

TEST(Linear, rounds_f32_weights_to_bf16_when_the_model_is_bf16) {
  Random random(29);
  const HostTensor weight = random.normal({40, 64}), x = random.normal({3, 64});
  HostTensor rounded(DType::bf16, {40, 64});
  for (int i = 0; i < 40 * 64; ++i) {
    rounded->as<BFloat16>()[i] = to_bfloat16(weight->as<float>()[i]);
  }
  auto bf16 = make_ops(1, DType::bf16), f32 = make_ops(1, DType::f32);
  expect_same_bits(multiply(*bf16, weight, x), multiply(*f32, rounded, x));
  EXPECT_LT((*bf16->weights().prepare(weight, 1, WeightEncoding::plain))->bytes(),
            (*f32->weights().prepare(weight, 1, WeightEncoding::plain))->bytes());
}

TEST(Linear, reads_f16_weights) {
  HostTensor weight(DType::f16, {2, 1});
  static_cast<std::uint16_t*>(weight->data())[0] = 0x3c00;  // 1
  static_cast<std::uint16_t*>(weight->data())[1] = 0xc100;  // -2.5
  HostTensor x = floats({1, 1});
  x->as<float>()[0] = 3;
  auto ops = make_ops();
  const HostTensor out = multiply(*ops, weight, x);
  EXPECT_EQ(out->as<float>()[0], 3.0F);
  EXPECT_EQ(out->as<float>()[1], -7.5F);
}

TEST(Linear, takes_no_rows) {
  Random random(31);
  auto ops = make_ops(2);
  auto linear = ops->weights().prepare(random.normal({64, 64}), 1, WeightEncoding::plain);
  ASSERT_TRUE(linear.ok());
  ops->dense().linear(**linear, floats({0, 64}), floats({0, 64}));
}

TEST(Linear, refuses_segments_that_do_not_divide_k) {
  Random random(37);
  auto ops = make_ops();
  for (int segments : {0, 3, 8, 128}) {
    auto linear = ops->weights().prepare(random.normal({8, 36}), segments, WeightEncoding::plain);
    ASSERT_FALSE(linear.ok()) << segments << " segments were accepted";
    EXPECT_EQ(linear.error().code, ErrorCode::invalid_argument);
  }
}

struct Grouped {
  std::vector<HostTensor> weights;
  HostTensor ids;  // [tokens, top_k]
  std::int64_t tokens, top_k;
};

Grouped random_groups(Random& random, std::int64_t tokens, std::int64_t experts, std::int64_t top_k,
                      Shape shape) {
  Grouped grouped{{}, HostTensor(DType::i32, {tokens, top_k}), tokens, top_k};
  for (int e = 0; e < experts; ++e) grouped.weights.push_back(random.normal_bf16(shape));
  for (int t = 0; t < tokens; ++t) {  // distinct experts per token
    const int first = random.integer(0, static_cast<int>(experts) - 1);
    for (int c = 0; c < top_k; ++c) {
      grouped.ids->as<std::int32_t>()[t * top_k + c] = static_cast<int>((first + c * 3) % experts);
    }
  }
  return grouped;
}

TEST(GroupedLinear, gives_every_routed_row_the_bits_of_its_experts_matrix_alone) {
  for (int threads : {1, 2, 3}) {
    for (std::int64_t tokens : {1, 5, 60}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, " << tokens << " tokens");
      Random random(41);
      const std::int64_t experts = 8, top_k = 3, n = 72, k = 128;
      const Grouped grouped = random_groups(random, tokens, experts, top_k, {n, k});
      const HostTensor x = random.normal({tokens, k});
      auto ops = make_ops(threads);
      std::vector<Tensor> views(grouped.weights.begin(), grouped.weights.end());
      const std::int64_t first = 2, local = 4;  // this rank's experts: 2, 3, 4, 5
      auto prepared = ops->weights().prepare_grouped(std::span(views).subspan(first, local), 4,
                                                     WeightEncoding::plain);
      ASSERT_TRUE(prepared.ok());
      HostTensor offsets(DType::i32, {local + 1}), source(DType::i32, {tokens * top_k});
      const ExpertBatch batch{offsets, source};
      ops->moe().permute(grouped.ids, first, batch);
      HostTensor sorted = floats({tokens * top_k, n}), scattered = floats({tokens * top_k, n});
      ops->moe().grouped_linear(**prepared, x, batch, top_k, true, false, sorted);
      ops->moe().grouped_linear(**prepared, x, batch, top_k, true, true, scattered);
      const std::int32_t* offset = offsets->as<std::int32_t>();
      for (std::int64_t e = 0; e < local; ++e) {
        const auto one = ops->weights().prepare(views[first + e], 4, WeightEncoding::plain);
        for (std::int64_t i = offset[e]; i < offset[e + 1]; ++i) {
          const std::int32_t pair = source->as<std::int32_t>()[i];
          ASSERT_EQ(grouped.ids->as<std::int32_t>()[pair], first + e);
          HostTensor expected = floats({1, n});
          ops->dense().linear(**one, x->rows(pair / top_k, 1), expected);
          expect_same_bits(sorted->rows(i, 1), expected);
          expect_same_bits(scattered->rows(pair, 1), expected);
        }
      }
    }
  }
}

TEST(GroupedLinear, reads_sorted_rows_without_gather) {
  Random random(43);
  const std::int64_t tokens = 9, top_k = 2, n = 32, k = 48;
  const Grouped grouped = random_groups(random, tokens, 4, top_k, {n, k});
  auto ops = make_ops(2);
  std::vector<Tensor> views(grouped.weights.begin(), grouped.weights.end());
  auto prepared = ops->weights().prepare_grouped(views, 1, WeightEncoding::plain);
  ASSERT_TRUE(prepared.ok());
  HostTensor offsets(DType::i32, {5}), source(DType::i32, {tokens * top_k});
  const ExpertBatch batch{offsets, source};
  ops->moe().permute(grouped.ids, 0, batch);
  const HostTensor x = random.normal({tokens * top_k, k});
  HostTensor out = floats({tokens * top_k, n});
  ops->moe().grouped_linear(**prepared, x, batch, top_k, false, false, out);
  for (int e = 0; e < 4; ++e) {
    const int begin = offsets->as<std::int32_t>()[e], end = offsets->as<std::int32_t>()[e + 1];
    if (begin == end) continue;
    expect_same_bits(out->rows(begin, end - begin),
                     multiply(*ops, views[e], x->rows(begin, end - begin)));
  }
}

TEST(HeadsLinear, gives_each_head_the_bits_of_its_matrix_alone_and_leaves_other_columns) {
  for (int threads : {1, 3}) {
    for (std::int64_t rows : {1, 5, 60}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, " << rows << " rows");
      Random random(47);
      const std::int64_t heads = 4, n = 72, k = 40, width = 80, before = 3, behind = 5;
      auto ops = make_ops(threads);
      std::vector<HostTensor> weights;
      for (std::int64_t h = 0; h < heads; ++h) weights.push_back(random.normal({n, k}));
      const std::vector<Tensor> views(weights.begin(), weights.end());
      auto prepared = ops->weights().prepare_grouped(views, 1, WeightEncoding::plain);
      ASSERT_TRUE(prepared.ok());
      const HostTensor x = random.normal({rows, before + heads * k + behind});
      HostTensor out = random.normal({rows, heads * width});
      const HostTensor old = floats(out->shape());
      std::ranges::copy(out->span<float>(), old->as<float>());
      ops->moe().heads_linear(**prepared, {x, before, heads * k}, out);
      for (std::int64_t h = 0; h < heads; ++h) {
        HostTensor own_x = floats({rows, k}), found = floats({rows, n});
        for (std::int64_t row = 0; row < rows; ++row) {
          const float* const from = x->as<float>() + row * x->shape()[1] + before + h * k;
          const std::int64_t at = row * heads * width + h * width;
          std::copy_n(from, k, own_x->as<float>() + row * k);
          std::copy_n(out->as<float>() + at, n, found->as<float>() + row * n);
          for (std::int64_t i = n; i < width; ++i) {
            ASSERT_EQ(out->as<float>()[at + i], old->as<float>()[at + i]);
          }
        }
        expect_same_bits(found, multiply(*ops, views[static_cast<std::size_t>(h)], own_x));
      }
    }
  }
}

TEST(Permute, keeps_token_order_within_an_expert_and_leaves_out_foreign_experts) {
  auto ops = make_ops();
  const HostTensor ids = integers({3, 1, 2, 3, 0, 2, 3, 2}, {4, 2});
  HostTensor offsets(DType::i32, {3}), source(DType::i32, {8});
  ops->moe().permute(ids, 2, {offsets, source});
  const auto offset = offsets->span<std::int32_t>();
  EXPECT_EQ(std::vector(offset.begin(), offset.end()), (std::vector<std::int32_t>{0, 3, 6}));
  const auto rows = source->span<std::int32_t>().first(6);
  EXPECT_EQ(std::vector(rows.begin(), rows.end()), (std::vector<std::int32_t>{2, 5, 7, 0, 3, 6}));
}

TEST(PermuteFilled, takes_the_first_rows_of_each_part_and_counts_them) {
  auto ops = make_ops();
  const HostTensor ids = integers({3, 1, 2, 3, 0, 2, 3, 2}, {4, 2}),
                   received_counts = integers({1, 2}, {2});
  HostTensor offsets(DType::i32, {3}), source(DType::i32, {8}), counts(DType::i64, {2});
  for (int i = 0; i < 2; ++i)
    ops->moe().permute_received(ids, received_counts, 2, {offsets, source}, counts);
  const auto offset = offsets->span<std::int32_t>();
  EXPECT_EQ(std::vector(offset.begin(), offset.end()), (std::vector<std::int32_t>{0, 2, 4}));
  const auto rows = source->span<std::int32_t>().first(4);
  EXPECT_EQ(std::vector(rows.begin(), rows.end()), (std::vector<std::int32_t>{5, 7, 0, 6}));
  const auto count = counts->span<std::int64_t>();
  EXPECT_EQ(std::vector(count.begin(), count.end()), (std::vector<std::int64_t>{4, 4}));
}

TEST(CombineLocal, adds_only_what_local_experts_made) {
  auto ops = make_ops();
  const HostTensor ids = integers({0, 3, 2, 3, 0, 1}, {3, 2});
  Random random(5);
  const HostTensor x = random.normal({6, 19}), weights = random.normal({3, 2});
  HostTensor out = floats({3, 19}), all = floats({1, 19});
  for (const int row : {0, 4, 5}) std::ranges::fill(x->rows(row, 1).span<float>(), NAN);
  ops->moe().combine_local(x, {ids, weights, 2}, 2, out);
  ops->moe().combine(x->rows(2, 2), weights->rows(1, 1), all);
  expect_same_bits(out->rows(1, 1), all);
  for (std::int64_t i = 0; i < 19; ++i) {
    EXPECT_EQ(out->as<float>()[i], x->as<float>()[19 + i] * weights->as<float>()[1]) << i;
    EXPECT_EQ(out->as<float>()[38 + i], 0.0F) << i;
  }
}

}  // namespace
}  // namespace troupe
