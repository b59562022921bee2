// Operations that must give a row the same bits in any batch.
#include <bit>
#include <cstdint>

#include <fmt/format.h>

#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

/// With cuBLASLt algorithms found to give the same bits, or without any.
class Deterministic : public BothDevices {
 protected:
  void SetUp() override {
    BothDevices::SetUp();
    if (IsSkipped()) return;
    remake(true);
  }
  void remake(bool tunes) {
    gpu_.reset();
    auto made = make_cuda_ops(
        {.device = 0, .dtype = DType::bf16, .autotunes_gemms = tunes, .deterministic = true});
    ASSERT_TRUE(made.ok()) << made.error().message;
    gpu_ = *std::move(made);
  }

  /// Expects the first rows of `found` to have the bits of the rows of `expected` from `begin` on.
  void expect_rows(const HostTensor& found, const HostTensor& expected, std::int64_t begin,
                   const std::string& what) {
    const std::int64_t width = expected->shape()[1];
    for (std::int64_t row = 0; row < found->shape()[0]; ++row) {
      const float* const a = found->rows(row, 1).as<float>();
      const float* const b = expected->rows(begin + row, 1).as<float>();
      for (std::int64_t i = 0; i < width; ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]))
            << what << ", row " << begin + row << ", element " << i << ": " << a[i] << " for "
            << b[i];
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Dtypes, Deterministic, testing::Values(DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(Deterministic, products_give_a_row_the_same_bits_in_every_batch) {
  struct Case {
    std::int64_t n, k;
    int segments;
  };
  // Whole tiles; ends of n and k within tiles; segments that tensor cores do not support.
  const Case cases[] = {{1024, 2048, 1}, {768, 4096, 4},  {2048, 1536, 2},
                        {1000, 3072, 4}, {136, 200, 1},   {131, 96, 4},
                        {24, 36, 4},     {9216, 1024, 1}, {152, 12288, 4}};
  for (const bool tunes : {false, true}) {
    remake(tunes);
    for (const Case& c : cases) {
      const HostTensor weight = random({c.n, c.k}, 1.0F / std::sqrt(static_cast<float>(c.k))),
                       x = random({430, c.k});
      auto linear = gpu_->weights().prepare(weight, c.segments, WeightEncoding::plain);
      ASSERT_TRUE(linear.ok()) << linear.error().message;
      const DeviceTensor gpu_x = activation(x);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const DeviceTensor all = room(dtype, {430, c.n});
        gpu_->dense().linear(**linear, gpu_x, all);
        const HostTensor expected = back(all);
        for (const auto& [begin, rows] : {std::pair{0, 1},
                                          {429, 1},
                                          {5, 3},
                                          {3, 16},
                                          {100, 32},
                                          {7, 40},
                                          {0, 64},
                                          {300, 130},
                                          {11, 256},
                                          {130, 300}}) {
          const DeviceTensor out = room(dtype, {rows, c.n});
          gpu_->dense().linear(**linear, gpu_x->rows(begin, rows), out);
          expect_rows(back(out), expected, begin,
                      fmt::format("{} rows, {} x {} in {}, {}", rows, c.n, c.k, c.segments,
                                  tunes ? "tuned" : "not tuned"));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Deterministic, products_without_tuning_give_the_bits_of_those_with_it) {
  const HostTensor weight = random({1536, 4096}, 0.02F), x = random({384, 4096});
  std::vector<HostTensor> found;
  for (const bool tunes : {false, true}) {
    remake(tunes);
    for (const int segments : {1, 4}) {
      auto linear = gpu_->weights().prepare(weight, segments, WeightEncoding::plain);
      ASSERT_TRUE(linear.ok());
      const DeviceTensor out = room(DType::f32, {384, 1536});
      gpu_->dense().linear(**linear, activation(x), out);
      found.push_back(back(out));
    }
  }
  expect_rows(found[2], found[0], 0, "whole");
  expect_rows(found[3], found[1], 0, "in segments");
  auto on_cpu = cpu_->weights().prepare(weight, 4, WeightEncoding::plain);
  ASSERT_TRUE(on_cpu.ok());
  const HostTensor near(DType::f32, {384, 1536});
  cpu_->dense().linear(**on_cpu, x, near);
  for (std::int64_t i = 0; i < near->elements(); ++i) {
    ASSERT_NEAR(found[1]->as<float>()[i], near->as<float>()[i], 2e-3F) << "element " << i;
  }
}

TEST_P(Deterministic, ranks_sums_are_the_upper_levels_of_a_products_tree) {
  for (const auto& [n, k, rows] :
       {std::tuple{512, 4096, 5}, {520, 1536, 70}, {1024, 3072, 300}, {40, 48, 9}}) {
    const HostTensor weight = random({n, k}, 0.05F), x = random({rows, k});
    const auto part_of = [&](const HostTensor& whole, std::int64_t ranks, std::int64_t rank) {
      const std::int64_t own = k / ranks, lines = whole->shape()[0];
      HostTensor part(DType::f32, {lines, own});
      for (std::int64_t i = 0; i < lines; ++i) {
        std::copy_n(whole->as<float>() + i * k + rank * own, own, part->as<float>() + i * own);
      }
      return part;
    };
    const auto sum_of = [&](std::int64_t ranks) {
      std::vector<HostTensor> sums;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        auto linear = gpu_->weights().prepare(part_of(weight, ranks, rank),
                                              static_cast<int>(4 / ranks), WeightEncoding::plain);
        EXPECT_TRUE(linear.ok());
        const DeviceTensor out = room(DType::f32, {rows, n});
        gpu_->dense().linear(**linear, activation(part_of(x, ranks, rank)), out);
        sums.push_back(back(out));
      }
      while (sums.size() > 1) {
        std::vector<HostTensor> pairs;
        for (std::size_t i = 0; i < sums.size(); i += 2) {
          for (std::int64_t e = 0; e < sums[i]->elements(); ++e) {
            sums[i]->as<float>()[e] += sums[i + 1]->as<float>()[e];
          }
          pairs.push_back(std::move(sums[i]));
        }
        sums = std::move(pairs);
      }
      return std::move(sums.front());
    };
    const HostTensor expected = sum_of(1);
    expect_rows(sum_of(2), expected, 0, fmt::format("two ranks, {} x {}", n, k));
    expect_rows(sum_of(4), expected, 0, fmt::format("four ranks, {} x {}", n, k));
  }
}

TEST_P(Deterministic, attention_gives_a_row_the_same_bits_in_every_pass) {
  struct Case {
    AttentionShape shape;
    std::int32_t block_size;
    bool has_sinks = false;
  };
  const Case cases[] = {
      {{.heads = 8, .kv_heads = 2, .head_dim = 128, .scale = 0.09F}, 16},
      {{.heads = 8, .kv_heads = 1, .head_dim = 128, .scale = 0.09F}, 32},
      {{.heads = 4, .kv_heads = 2, .head_dim = 128, .scale = 0.09F}, 16},
      {{.heads = 6, .kv_heads = 2, .head_dim = 64, .scale = 0.125F}, 16},
      {{.heads = 2, .kv_heads = 2, .head_dim = 64, .scale = 0.125F}, 16},
      {{.heads = 6, .kv_heads = 2, .head_dim = 80, .scale = 0.1F}, 16},
      {{.heads = 24, .kv_heads = 2, .head_dim = 96, .scale = 0.1F, .soft_cap = 3.0F}, 16},
      {{.heads = 14, .kv_heads = 1, .head_dim = 112, .scale = 0.1F}, 32, true},
      {{.heads = 32, .kv_heads = 2, .head_dim = 128, .scale = 0.09F}, 16, true},
      {{.heads = 71, .kv_heads = 1, .head_dim = 64, .scale = 0.125F}, 16},
      {{.heads = 6, .kv_heads = 2, .head_dim = 192, .scale = 0.07F, .soft_cap = 5.0F}, 16, true},
      {{.heads = 8, .kv_heads = 4, .head_dim = 256, .scale = 0.06F, .soft_cap = 5.0F}, 16},
      {{.heads = 8, .kv_heads = 2, .head_dim = 96, .scale = 0.1F, .window = 300}, 16, true},
      {{.heads = 8, .kv_heads = 4, .head_dim = 128, .scale = 0.09F, .window = 600}, 32},
      {{.heads = 8, .kv_heads = 1, .head_dim = 64, .scale = 0.1F, .window = 17}, 16},
      {{.heads = 4, .kv_heads = 4, .head_dim = 16, .scale = 0.3F, .window = 24}, 16},
      {{.heads = 3, .kv_heads = 1, .head_dim = 80, .scale = 0.1F, .latent = 64}, 16}};
  constexpr std::int32_t length = 1100, others = 40;
  for (const Case& c : cases) {
    AttentionShape shape = c.shape;
    const DeviceTensor sinks = exact(random({shape.heads}, 2.0F));
    if (c.has_sinks) shape.sinks = sinks;
    const std::int64_t dim = shape.head_dim;
    const std::int32_t own_blocks = (length + c.block_size - 1) / c.block_size;
    const std::int64_t blocks = own_blocks * 2;
    const std::vector<std::int32_t> table = shuffled(blocks);
    auto kv = gpu_->attention().allocate_kv(blocks, c.block_size, shape, DType::bf16);
    ASSERT_TRUE(kv.ok()) << kv.error().message;
    const KvLayer layer{kv->first, kv->second};
    const DeviceTensor tables = exact(integers(table, {blocks}));
    const auto fill = [&](const Tensor& device, const HostTensor& host) {
      HostTensor narrow(DType::bf16, device.shape());
      for (std::int64_t i = 0; i < narrow->elements(); ++i) {
        narrow->as<BFloat16>()[i] = to_bfloat16(host->as<float>()[i]);
      }
      gpu_->memory().upload(narrow, device);
      ASSERT_TRUE(gpu_->stream().synchronize().ok());
    };
    fill(kv->first, random(kv->first->shape()));
    if (shape.latent == 0) fill(kv->second, random(kv->second->shape()));
    const HostTensor q = random({length, shape.heads * dim});
    /// Returns the output of rows [begin, begin + rows), with other rows in the pass if `company` >
    /// 0.
    const auto attend = [&](std::int32_t begin, std::int32_t rows, std::int32_t company) {
      std::vector<SequenceSpan> spans;
      for (std::int32_t i = 0; i < company; ++i)
        spans.push_back({i, 1, i * 27 % length, own_blocks});
      spans.push_back({company, rows, begin, 0});
      const HostTensor joined(DType::f32, {company + rows, shape.heads * dim});
      for (std::int32_t i = 0; i < company + rows; ++i) {
        const std::int32_t from = i < company ? i * 31 % length : begin + i - company;
        std::copy_n(q->rows(from, 1).as<float>(), shape.heads * dim,
                    joined->rows(i, 1).as<float>());
      }
      const DeviceTensor gpu_spans = exact(integers(numbers_of(spans), {std::ssize(spans), 4}));
      const DeviceTensor own_q = activation(joined);
      const DeviceTensor out = room(DType::bf16, {company + rows, shape.heads * shape.value_dim()});
      const AttentionBatch batch{{}, {}, tables, spans, c.block_size, gpu_spans};
      gpu_->attention().plan(shape, batch);
      gpu_->attention().attend(own_q, shape, batch, layer, out);
      const HostTensor all = back(out);
      HostTensor own(DType::f32, {rows, shape.heads * shape.value_dim()});
      std::copy_n(all->rows(company, rows).as<float>(), own->elements(), own->as<float>());
      return own;
    };
    const HostTensor expected = attend(0, length, 0);
    for (std::int64_t i = 0; i < expected->elements(); ++i) {
      ASSERT_TRUE(std::isfinite(expected->as<float>()[i])) << "element " << i;
    }
    for (const auto& [begin, rows] : {std::pair{0, 1},
                                      {1, 1},
                                      {15, 1},
                                      {16, 1},
                                      {511, 1},
                                      {512, 1},
                                      {513, 1},
                                      {1024, 1},
                                      {1099, 1},
                                      {0, 7},
                                      {3, 64},
                                      {505, 13},
                                      {500, 600},
                                      {1090, 10}}) {
      for (const std::int32_t company : {0, 1, others}) {
        expect_rows(attend(begin, rows, company), expected, begin,
                    fmt::format("{} rows from {} with {} others, {} / {} heads of {}", rows, begin,
                                company, shape.heads, shape.kv_heads, dim));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Deterministic, attention_is_the_hosts) {
  for (const auto& [heads, kv_heads, dim, soft_cap, has_sinks, window] :
       {std::tuple{8, 2, 128, 0.0F, false, 0},
        {8, 1, 128, 0.0F, true, 0},
        {8, 2, 128, 0.0F, false, 100},
        {6, 2, 64, 0.0F, false, 0},
        {6, 2, 64, 0.0F, true, 530},
        {4, 4, 64, 0.0F, false, 0},
        {24, 2, 80, 0.0F, true, 0},
        {6, 2, 96, 4.0F, false, 0},
        {71, 1, 112, 0.0F, false, 33},
        {4, 2, 192, 3.0F, true, 0},
        {7, 1, 256, 0.0F, true, 0}}) {
    AttentionShape shape{.heads = heads,
                         .kv_heads = kv_heads,
                         .head_dim = dim,
                         .scale = 0.09F,
                         .window = window,
                         .soft_cap = soft_cap};
    const HostTensor sinks = random({heads}, 2.0F);
    const DeviceTensor gpu_sinks = exact(sinks);
    AttentionShape gpu_shape = shape;
    if (has_sinks) shape.sinks = sinks, gpu_shape.sinks = gpu_sinks;
    constexpr std::int32_t length = 700, blocks = 44;
    const std::vector<std::int32_t> table = shuffled(blocks);
    const HostTensor tables = integers(table, {blocks});
    auto cpu_kv = cpu_->attention().allocate_kv(blocks, 16, shape, DType::bf16);
    auto gpu_kv = gpu_->attention().allocate_kv(blocks, 16, shape, DType::bf16);
    ASSERT_TRUE(cpu_kv.ok() && gpu_kv.ok());
    const KvLayer cpu_layer{cpu_kv->first, cpu_kv->second},
        gpu_layer{gpu_kv->first, gpu_kv->second};
    std::vector<std::int32_t> positions, slots;
    for (std::int32_t p = 0; p < length; ++p) {
      positions.push_back(p);
      slots.push_back(table[static_cast<std::size_t>(p / 16)] * 16 + p % 16);
    }
    const std::vector<SequenceSpan> spans{{0, length, 0, 0}};
    const HostTensor at = integers(positions, {length}), slot = integers(slots, {length}),
                     rope = random({length, dim}),
                     qkv = random({length, (heads + 2 * kv_heads) * dim}),
                     q(DType::f32, {length, heads * dim}), out(DType::f32, q->shape());
    const DeviceTensor gpu_at = exact(at), gpu_slot = exact(slot), gpu_tables = exact(tables),
                       gpu_spans = exact(integers(numbers_of(spans), {1, 4})),
                       gpu_q = room(DType::bf16, q->shape()),
                       gpu_out = room(DType::bf16, q->shape());
    const AttentionBatch cpu_batch{at, slot, tables, spans, 16, {}};
    const AttentionBatch gpu_batch{gpu_at, gpu_slot, gpu_tables, spans, 16, gpu_spans};
    cpu_->attention().norm_rope_store(qkv, {}, {}, 1e-6F, rope, shape, cpu_batch, cpu_layer, q);
    gpu_->attention().norm_rope_store(activation(qkv), {}, {}, 1e-6F, exact(rope), shape, gpu_batch,
                                      gpu_layer, gpu_q);
    cpu_->attention().attend(back(gpu_q), shape, cpu_batch, cpu_layer, out);
    gpu_->attention().plan(gpu_shape, gpu_batch);
    gpu_->attention().attend(gpu_q, gpu_shape, gpu_batch, gpu_layer, gpu_out);
    expect_equal(gpu_out, out,
                 fmt::format("{} / {} heads of {}, window of {}", heads, kv_heads, dim, window));
  }
}

TEST_P(Deterministic, norms_and_rotations_give_a_row_the_same_bits_in_every_batch) {
  constexpr std::int64_t rows = 300, heads = 4, kv_heads = 2, dim = 128, width = 2048;
  const AttentionShape shape{.heads = heads, .kv_heads = kv_heads, .head_dim = dim};
  const HostTensor x = random({rows, width}), update = random({rows, width}),
                   qkv = random({rows, (heads + 2 * kv_heads) * dim});
  const DeviceTensor weight = exact(random({width})), norm = exact(random({dim})),
                     rope = exact(random({rows, dim}));
  struct Found {
    HostTensor normed, query, keys, gated;
  };
  const auto run = [&](std::int64_t begin, std::int64_t count) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(count)), slots;
    std::iota(numbers.begin(), numbers.end(), static_cast<std::int32_t>(begin));
    for (std::int64_t i = 0; i < count; ++i) slots.push_back(static_cast<std::int32_t>(i));
    const DeviceTensor at = exact(integers(numbers, {count})),
                       slot = exact(integers(slots, {count}));
    auto kv = gpu_->attention().allocate_kv(1, static_cast<std::int32_t>(rows), shape, DType::bf16);
    EXPECT_TRUE(kv.ok());
    const AttentionBatch batch{at, slot, {}, {}, static_cast<std::int32_t>(rows), {}};
    const DeviceTensor query = room(DType::bf16, {count, heads * dim}),
                       normed = room(DType::bf16, {count, width}),
                       gated = room(DType::bf16, {count, width / 2}),
                       residual = activation(x->rows(begin, count));
    gpu_->attention().norm_rope_store(activation(qkv->rows(begin, count)), norm, norm, 1e-6F, rope,
                                      shape, batch, {kv->first, kv->second}, query);
    gpu_->dense().add_rms_norm(residual, exact(update->rows(begin, count)), weight, 1e-6F, normed);
    gpu_->dense().silu_mul(residual, gated);
    const HostTensor all_keys = back(kv->first);
    // [1, kv_heads, rows, dim]: those of the first KV head.
    HostTensor keys(DType::f32, {count, dim});
    std::copy_n(all_keys->as<float>(), keys->elements(), keys->as<float>());
    return Found{back(normed), back(query), std::move(keys), back(gated)};
  };
  const Found all = run(0, rows);
  for (const auto& [begin, count] : {std::pair{0, 1}, {17, 3}, {100, 32}, {7, 33}, {200, 100}}) {
    const Found some = run(begin, count);
    const std::string what = fmt::format("{} rows", count);
    expect_rows(some.normed, all.normed, begin, what + ", norm");
    expect_rows(some.query, all.query, begin, what + ", query");
    expect_rows(some.keys, all.keys, begin, what + ", key");
    expect_rows(some.gated, all.gated, begin, what + ", gate");
  }
}

TEST_P(Deterministic, experts_give_a_token_the_same_bits_in_every_batch) {
  constexpr std::int64_t most = 300, experts = 32, top_k = 4, hidden = 256, inner = 96;
  std::vector<HostTensor> gates, downs;
  for (std::int64_t e = 0; e < experts; ++e) {
    gates.push_back(random({2 * inner, hidden}, 0.1F));
    downs.push_back(random({hidden, inner}, 0.1F));
  }
  auto gate_up = gpu_->weights().prepare_grouped(std::vector<Tensor>(gates.begin(), gates.end()), 1,
                                                 WeightEncoding::plain);
  auto down = gpu_->weights().prepare_grouped(std::vector<Tensor>(downs.begin(), downs.end()), 1,
                                              WeightEncoding::plain);
  auto router = gpu_->weights().prepare(random({experts, hidden}, 0.2F), 1, WeightEncoding::plain);
  ASSERT_TRUE(gate_up.ok() && down.ok() && router.ok());
  const HostTensor x = random({most, hidden});
  const DeviceTensor gpu_x = activation(x), counts = room(DType::i64, {experts});
  const auto run = [&](std::int64_t begin, std::int64_t tokens) {
    const std::int64_t pairs = tokens * top_k;
    const DeviceTensor ids = room(DType::i32, {tokens, top_k}),
                       weights = room(DType::f32, {tokens, top_k}),
                       offsets = room(DType::i32, {experts + 1}),
                       source = room(DType::i32, {pairs}),
                       logits = room(DType::f32, {tokens, experts}),
                       gate = room(DType::bf16, {pairs, 2 * inner}),
                       activated = room(DType::bf16, {pairs, inner}),
                       rows = room(DType::f32, {pairs, hidden}),
                       out = room(DType::f32, {tokens, hidden});
    const ExpertChoices choices{ids, weights, 0};
    const ExpertBatch batch{offsets, source};
    const Tensor own = gpu_x->rows(begin, tokens);
    gpu_->moe().route_tokens(**router, own, logits, {}, {.top_k = top_k, .normalize = true},
                             choices, batch, counts);
    gpu_->moe().expert_mlp(**gate_up, **down, own, choices, batch, {gate, activated, rows}, out);
    return back(out);
  };
  const HostTensor all = run(0, most);
  for (const auto& [begin, tokens] : {std::pair{0, 1}, {8, 3}, {100, 8}, {5, 64}, {50, 200}}) {
    expect_rows(run(begin, tokens), all, begin, fmt::format("{} tokens", tokens));
  }
}

}  // namespace
}  // namespace troupe
