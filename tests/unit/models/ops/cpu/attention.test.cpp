#include <cmath>

#include "tests/unit/models/ops/cpu/ops_fixture.hpp"

namespace troupe {
namespace {

/// One layer's cache with sequences whose blocks are in shuffled order, written and read only
/// through Ops.
class Cache {
 public:
  Cache(Ops& ops, AttentionShape shape, DType dtype, const std::vector<int>& lengths,
        std::int32_t block_size = 16)
      : ops_(ops), shape_(shape), block_size_(block_size) {
    for (const int length : lengths) {
      offsets_.push_back(static_cast<std::int32_t>(table_.size()));
      for (int i = 0; i < (length + block_size - 1) / block_size; ++i) table_.push_back(0);
    }
    const auto blocks = static_cast<std::int32_t>(table_.size());
    for (std::int32_t i = 0; i < blocks; ++i) table_[i] = (i * 7 + 3) % blocks;
    if (blocks % 7 == 0) {
      for (std::int32_t i = 0; i < blocks; ++i) table_[i] = blocks - 1 - i;
    }
    auto pair = ops.attention().allocate_kv(blocks, block_size, shape, dtype);
    EXPECT_TRUE(pair.ok());
    owners_ = std::move(pair).value();
    // Contents left in a page by other sequences must not matter.
    std::memset(owners_.first->data(), 0x7f, owners_.first->bytes());
    std::memset(owners_.second->data(), 0x7f, owners_.second->bytes());
  }

  /// Makes block-table entries of blocks entirely before `position` name a block so far away that
  /// reading it crashes.
  void forget_before(int sequence, int position) {
    for (int i = 0; i < position / block_size_; ++i) table_[offsets_[sequence] + i] = 1 << 28;
  }

  /// Rows [begin, begin + count) of each named sequence, stored and attended to in one pass; qkv
  /// holds all rows of all sequences, sequence after sequence of `stride` rows.
  struct Part {
    int sequence, begin, count;
  };
  HostTensor run(const Tensor& qkv, std::int64_t stride, const std::vector<Part>& parts,
                 const Tensor& rope, const Tensor& q_norm = {}, const Tensor& k_norm = {}) {
    std::vector<std::int32_t> positions, slots;
    std::vector<SequenceSpan> spans;
    for (const Part& part : parts) {
      spans.push_back({static_cast<std::int32_t>(positions.size()), part.count, part.begin,
                       offsets_[part.sequence]});
      for (int i = part.begin; i < part.begin + part.count; ++i) {
        positions.push_back(i);
        slots.push_back(table_[offsets_[part.sequence] + i / block_size_] * block_size_ +
                        i % block_size_);
      }
    }
    const auto tokens = static_cast<std::int64_t>(positions.size());
    HostTensor rows = floats({tokens, qkv[1]});
    std::int64_t at = 0;
    for (const Part& part : parts) {
      std::memcpy(rows->rows(at, part.count).data(),
                  qkv.rows(part.sequence * stride + part.begin, part.count).data(),
                  qkv.rows(0, part.count).bytes());
      at += part.count;
    }
    const HostTensor position = integers(positions), slot = integers(slots),
                     table = integers(table_);
    const AttentionBatch batch{position, slot, table, spans, block_size_, {}};
    const KvLayer layer{owners_.first, owners_.second};
    HostTensor q = floats({tokens, shape_.heads * shape_.head_dim});
    HostTensor out = floats(q->shape());
    ops_.attention().norm_rope_store(rows, q_norm, k_norm, 1e-6F, rope, shape_, batch, layer, q);
    ops_.attention().attend(q, shape_, batch, layer, out);
    return out;
  }

 private:
  Ops& ops_;
  AttentionShape shape_;
  std::int32_t block_size_;
  std::vector<std::int32_t> table_, offsets_;
  std::pair<DeviceTensor, DeviceTensor> owners_;
};

using Head = std::vector<double>;

Head reference_head(const float* x, const Tensor& norm, const float* rope, std::int64_t dim) {
  Head head(x, x + dim), out(dim);
  if (!norm.empty()) {
    double sum = 0;
    for (double v : head) sum += v * v;
    for (std::int64_t i = 0; i < dim; ++i) {
      head[i] *= norm.as<float>()[i] / std::sqrt(sum / dim + 1e-6);
    }
  }
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const double a = head[i], b = head[i + dim / 2], c = rope[i], s = rope[i + dim / 2];
    out[i] = a * c - b * s;
    out[i + dim / 2] = b * c + a * s;
  }
  return out;
}

/// Norm, rotation and full softmax in double, cache rounded to `dtype`. Rows of one sequence.
std::vector<double> reference(const Tensor& qkv, const AttentionShape& shape, const Tensor& rope,
                              const Tensor& q_norm, const Tensor& k_norm, DType dtype) {
  const std::int64_t dim = shape.head_dim, rows = qkv[0], group = shape.heads / shape.kv_heads;
  const auto stored = [&](double x) {
    return dtype == DType::bf16 ? to_float(to_bfloat16(static_cast<float>(x))) : x;
  };
  const auto at = [&](std::int64_t row, std::int64_t head) {
    return qkv.as<float>() + row * qkv[1] + head * dim;
  };
  std::vector<double> out(rows * shape.heads * dim);
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    std::vector<Head> keys;
    for (std::int64_t t = 0; t < rows; ++t) {
      const float* angle = rope.as<float>() + t * dim;
      keys.push_back(reference_head(at(t, shape.heads + h / group), k_norm, angle, dim));
      for (double& x : keys.back()) x = stored(x);
      const Head q = reference_head(at(t, h), q_norm, angle, dim);
      std::vector<double> weight(t + 1);
      double largest = -1e300, sum = 0;
      const std::int64_t first =
          shape.window == 0 ? 0 : std::max<std::int64_t>(0, t - shape.window + 1);
      for (std::int64_t j = first; j <= t; ++j) {
        for (std::int64_t d = 0; d < dim; ++d) weight[j] += q[d] * keys[j][d] * shape.scale;
        if (shape.soft_cap > 0) weight[j] = shape.soft_cap * std::tanh(weight[j] / shape.soft_cap);
        largest = std::max(largest, weight[j]);
      }
      if (!shape.sinks.empty()) {
        const double sink = shape.sinks.as<float>()[h];
        largest = std::max(largest, sink);
        sum = std::exp(sink - largest);
      }
      for (std::int64_t j = first; j <= t; ++j) sum += weight[j] = std::exp(weight[j] - largest);
      for (std::int64_t j = first; j <= t; ++j) {
        const float* value = at(j, shape.heads + shape.kv_heads + h / group);
        for (std::int64_t d = 0; d < dim; ++d) {
          out[(t * shape.heads + h) * dim + d] += weight[j] / sum * stored(value[d]);
        }
      }
    }
  }
  return out;
}

TEST(Attention, agrees_with_double_precision) {
  struct Case {
    AttentionShape shape;
    int rows;
    bool norm;
  };
  // 2, 24, 40, 90 and 120 are no multiples of a vector; 640 is more than any published model's.
  const Case cases[] = {{{4, 2, 2, 0.7F}, 70, true},      {{4, 2, 24, 0.2F}, 150, true},
                        {{6, 3, 40, 0.16F}, 70, false},   {{2, 2, 90, 0.1F}, 40, true},
                        {{4, 1, 96, 0.1F}, 70, true},     {{3, 1, 120, 0.09F}, 70, false},
                        {{2, 1, 640, 0.04F}, 20, true},   {{4, 2, 64, 0.125F}, 150, true},
                        {{3, 3, 16, 0.25F}, 70, false},   {{8, 1, 80, 0.11F}, 65, true},
                        {{2, 1, 128, 0.09F}, 130, false}, {{72, 1, 16, 0.25F}, 70, false},
                        {{67, 1, 16, 0.25F}, 20, false}};
  for (const Case& c : cases) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const CpuIsa isa : {CpuIsa::avx2, CpuIsa::best}) {
        for (const std::int32_t block_size : {16, 32}) {
          SCOPED_TRACE(testing::Message() << "seed 3, head_dim " << c.shape.head_dim << ", "
                                          << to_string(dtype) << ", block " << block_size);
          Random random(3);
          auto ops = make_ops(2, DType::f32, isa);
          const std::int64_t dim = c.shape.head_dim;
          const HostTensor qkv =
              random.normal({c.rows, (c.shape.heads + 2 * c.shape.kv_heads) * dim});
          const HostTensor rope = rope_table(c.rows, dim);
          const HostTensor weight = random.normal({dim}), other = random.normal({dim});
          const Tensor q_norm = c.norm ? weight.view() : Tensor();
          const Tensor k_norm = c.norm ? other.view() : Tensor();
          Cache cache(*ops, c.shape, dtype, {c.rows}, block_size);
          const HostTensor out = cache.run(qkv, c.rows, {{0, 0, c.rows}}, rope, q_norm, k_norm);
          // A key on a rounding boundary of bf16 may be stored one step apart from the reference's.
          expect_near(out, reference(qkv, c.shape, rope, q_norm, k_norm, dtype),
                      dtype == DType::f32 ? 4e-6 : 1e-2);
        }
      }
    }
  }
}

TEST(Attention, gives_a_row_the_same_bits_however_the_prompt_was_chunked) {
  const int rows = 300;
  for (const std::int64_t dim : {64, 40}) {
    const AttentionShape shape{4, 2, dim, 0.125F};
    Random random(5);
    const HostTensor qkv = random.normal({rows, 8 * dim});
    const HostTensor rope = rope_table(rows, dim);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      auto ops = make_ops(2);
      Cache whole_cache(*ops, shape, dtype, {rows});
      const HostTensor whole = whole_cache.run(qkv, rows, {{0, 0, rows}}, rope);
      for (unsigned seed = 1; seed <= 12; ++seed) {
        SCOPED_TRACE(testing::Message()
                     << "seed " << seed << ", head_dim " << dim << ", " << to_string(dtype));
        Random cuts(seed);
        Cache cache(*ops, shape, dtype, {rows});
        for (int begin = 0; begin < rows;) {
          const int count = std::min(rows - begin, cuts.integer(1, 12 * static_cast<int>(seed)));
          const HostTensor part = cache.run(qkv, rows, {{0, begin, count}}, rope);
          expect_same_bits(part, whole->rows(begin, count));
          begin += count;
        }
      }
    }
  }
}

TEST(Attention, gives_a_row_the_same_bits_whoever_shares_the_batch_and_on_any_threads) {
  const AttentionShape shape{6, 2, 32, 0.2F};
  const int stride = 200;
  Random random(7);
  const HostTensor qkv = random.normal({3 * stride, 10 * 32});
  const HostTensor rope = rope_table(stride, 32);
  std::vector<HostTensor> alone;
  for (int s = 0; s < 3; ++s) {
    auto ops = make_ops(1);
    Cache cache(*ops, shape, DType::bf16, {stride});
    alone.push_back(cache.run(qkv->rows(s * stride, stride), stride, {{0, 0, stride}}, rope));
  }
  for (int threads : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << threads << " threads");
    auto ops = make_ops(threads);
    Cache cache(*ops, shape, DType::bf16, {stride, stride, stride});
    const HostTensor first = cache.run(qkv, stride, {{1, 0, 100}, {0, 0, 33}}, rope);
    expect_same_bits(first->rows(0, 100), alone[1]->rows(0, 100));
    expect_same_bits(first->rows(100, 33), alone[0]->rows(0, 33));
    const HostTensor next = cache.run(qkv, stride, {{0, 33, 1}, {2, 0, 199}, {1, 100, 1}}, rope);
    expect_same_bits(next->rows(0, 1), alone[0]->rows(33, 1));
    expect_same_bits(next->rows(1, 199), alone[2]->rows(0, 199));
    expect_same_bits(next->rows(200, 1), alone[1]->rows(100, 1));
  }
}

TEST(Attention, gives_a_rank_with_half_of_the_heads_the_bits_of_the_whole) {
  const std::int64_t rows = 90, dim = 64;
  Random random(11);
  const HostTensor qkv = random.normal({rows, 8 * dim});
  const HostTensor rope = rope_table(rows, dim);
  auto ops = make_ops(2);
  Cache whole_cache(*ops, {4, 2, dim, 0.125F}, DType::f32, {int(rows)});
  const HostTensor whole = whole_cache.run(qkv, rows, {{0, 0, int(rows)}}, rope);
  for (const std::int64_t rank : {0, 1}) {
    HostTensor local = floats({rows, 4 * dim});
    const std::int64_t heads[] = {2 * rank, 2 * rank + 1, 4 + rank, 6 + rank};
    for (std::int64_t t = 0; t < rows; ++t) {
      for (int h = 0; h < 4; ++h) {
        std::copy_n(qkv->as<float>() + (t * 8 + heads[h]) * dim, dim,
                    local->as<float>() + (t * 4 + h) * dim);
      }
    }
    Cache cache(*ops, {2, 1, dim, 0.125F}, DType::f32, {int(rows)});
    const HostTensor out = cache.run(local, rows, {{0, 0, int(rows)}}, rope);
    for (std::int64_t t = 0; t < rows; ++t) {
      Tensor expected(whole->as<float>() + (t * 4 + 2 * rank) * dim, DType::f32, {1, 2 * dim});
      expect_same_bits(out->rows(t, 1), expected);
    }
  }
}

TEST(Attention, gives_the_same_bits_with_avx2_and_avx512) {
  if (!cpu_supports(CpuIsa::avx512)) GTEST_SKIP() << "this CPU has no AVX-512";
  for (const std::int64_t dim : {16, 24, 40, 48, 64, 80, 90, 128}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << dim << ", " << to_string(dtype));
      Random random(13);
      const AttentionShape shape{4, 2, dim, 0.3F};
      const HostTensor qkv = random.normal({140, 8 * dim});
      const HostTensor rope = rope_table(140, dim), norm = random.normal({dim});
      auto narrow = make_ops(1, DType::f32, CpuIsa::avx2);
      auto wide = make_ops(1, DType::f32, CpuIsa::avx512);
      Cache a(*narrow, shape, dtype, {140}), b(*wide, shape, dtype, {140});
      expect_same_bits(a.run(qkv, 140, {{0, 0, 140}}, rope, norm, norm),
                       b.run(qkv, 140, {{0, 0, 140}}, rope, norm, norm));
    }
  }
}

TEST(WindowAttention, agrees_with_double_precision) {
  Random random(19);
  const std::int64_t rows = 200, dim = 32;
  const HostTensor qkv = random.normal({rows, 8 * dim});
  const HostTensor rope = rope_table(rows, dim);
  for (const std::int64_t window : {1, 2, 15, 16, 17, 33, 64, 65, 100, 199, 200, 5000}) {
    for (const CpuIsa isa : {CpuIsa::avx2, CpuIsa::best}) {
      SCOPED_TRACE(testing::Message() << "seed 19, window " << window);
      const AttentionShape shape{4, 2, dim, 0.2F, window};
      auto ops = make_ops(2, DType::f32, isa);
      Cache cache(*ops, shape, DType::f32, {int(rows)}, 32);
      const HostTensor out = cache.run(qkv, rows, {{0, 0, int(rows)}}, rope);
      expect_near(out, reference(qkv, shape, rope, {}, {}, DType::f32), 4e-6);
    }
  }
}

TEST(WindowAttention, gives_the_bits_of_full_attention_where_it_hides_nothing) {
  Random random(23);
  const HostTensor qkv = random.normal({150, 8 * 32});
  const HostTensor rope = rope_table(150, 32);
  auto ops = make_ops(1);
  Cache full(*ops, {4, 2, 32, 0.2F}, DType::f32, {150});
  Cache windowed(*ops, {4, 2, 32, 0.2F, 150}, DType::f32, {150});
  expect_same_bits(windowed.run(qkv, 150, {{0, 0, 150}}, rope),
                   full.run(qkv, 150, {{0, 0, 150}}, rope));
}

TEST(WindowAttention, gives_the_same_bits_chunked_in_company_and_without_what_left_the_window) {
  const int rows = 300;
  Random random(29);
  const HostTensor qkv = random.normal({2 * rows, 8 * 32});
  const HostTensor rope = rope_table(rows, 32);
  for (const int window : {1, 20, 32, 64, 90}) {
    for (const CpuIsa isa : {CpuIsa::avx2, CpuIsa::best}) {
      const AttentionShape shape{4, 2, 32, 0.2F, window};
      auto ops = make_ops(2, DType::f32, isa);
      Cache whole_cache(*ops, shape, DType::bf16, {rows});
      const HostTensor whole = whole_cache.run(qkv, rows, {{0, 0, rows}}, rope);
      for (unsigned seed = 1; seed <= 6; ++seed) {
        SCOPED_TRACE(testing::Message() << "window " << window << ", seed " << seed);
        Random cuts(seed);
        Cache cache(*ops, shape, DType::bf16, {rows, rows});
        for (int begin = 0; begin < rows;) {
          const int count = std::min(rows - begin, cuts.integer(1, 24 * static_cast<int>(seed)));
          cache.forget_before(0, begin - window + 1);
          const HostTensor part =
              cache.run(qkv, rows, {{1, 0, cuts.integer(1, 40)}, {0, begin, count}}, rope);
          expect_same_bits(part->rows(part->shape()[0] - count, count), whole->rows(begin, count));
          begin += count;
        }
      }
    }
  }
}

TEST(SinkAttention, agrees_with_double_precision) {
  Random random(31);
  const std::int64_t rows = 150, dim = 32;
  const HostTensor qkv = random.normal({rows, 10 * dim});
  const HostTensor rope = rope_table(rows, dim);
  const HostTensor sinks = random.normal({6}, 3.0F);
  sinks->as<float>()[0] = -200.0F;  // nothing beside the least score
  sinks->as<float>()[1] = 150.0F;   // all but nothing is left
  for (const std::int64_t window : {0, 40}) {
    for (const CpuIsa isa : {CpuIsa::avx2, CpuIsa::best}) {
      SCOPED_TRACE(testing::Message() << "seed 31, window " << window);
      AttentionShape shape{6, 2, dim, 0.2F, window};
      shape.sinks = sinks;
      auto ops = make_ops(2, DType::f32, isa);
      Cache cache(*ops, shape, DType::f32, {int(rows)});
      const HostTensor out = cache.run(qkv, rows, {{0, 0, int(rows)}}, rope);
      expect_near(out, reference(qkv, shape, rope, {}, {}, DType::f32), 4e-6);
    }
  }
}

TEST(SoftCapAttention, agrees_with_double_precision) {
  Random random(37);
  const std::int64_t rows = 150;
  for (const std::int64_t dim : {24, 64, 256}) {
    const HostTensor qkv = random.normal({rows, 8 * dim}, 2.0F);
    const HostTensor rope = rope_table(rows, dim);
    const HostTensor sinks = random.normal({4});
    for (const float cap : {0.5F, 10.0F, 50.0F}) {
      for (const CpuIsa isa : {CpuIsa::avx2, CpuIsa::best}) {
        SCOPED_TRACE(testing::Message() << "seed 37, heads of " << dim << ", cap " << cap);
        AttentionShape shape{4, 2, dim, 2.0F / std::sqrt(static_cast<float>(dim)),
                             cap > 1 ? 33 : 0};
        shape.soft_cap = cap;
        if (cap > 20) shape.sinks = sinks;
        auto ops = make_ops(2, DType::f32, isa);
        Cache cache(*ops, shape, DType::f32, {int(rows)});
        const HostTensor out = cache.run(qkv, rows, {{0, 0, int(rows)}}, rope);
        // Scores near the cap have its rounding error.
        expect_near(out, reference(qkv, shape, rope, {}, {}, DType::f32), 1e-6 * (20 + cap));
      }
    }
  }
}

TEST(SoftCapAttention, gives_the_same_bits_chunked_and_with_avx2_and_avx512) {
  const int rows = 200;
  Random random(41);
  const HostTensor qkv = random.normal({rows, 8 * 32}, 3.0F);
  const HostTensor rope = rope_table(rows, 32);
  const HostTensor sinks = random.normal({4}, 3.0F);
  AttentionShape shape{4, 2, 32, 0.2F, 70};
  shape.soft_cap = 5.0F;
  shape.sinks = sinks;
  auto narrow = make_ops(1, DType::f32, CpuIsa::avx2);
  auto best = make_ops(2, DType::f32, CpuIsa::best);
  Cache whole_cache(*narrow, shape, DType::bf16, {rows});
  const HostTensor whole = whole_cache.run(qkv, rows, {{0, 0, rows}}, rope);
  Cache cache(*best, shape, DType::bf16, {rows});
  for (int begin = 0; begin < rows;) {
    const int count = std::min(rows - begin, 1 + begin % 37);
    expect_same_bits(cache.run(qkv, rows, {{0, begin, count}}, rope), whole->rows(begin, count));
    begin += count;
  }
}

TEST(Attention, survives_scores_far_apart) {
  const AttentionShape shape{1, 1, 16, 1.0F};
  Random random(17);
  const HostTensor qkv = random.normal({100, 3 * 16}, 100.0F);
  const HostTensor rope = rope_table(100, 16);
  auto ops = make_ops();
  Cache cache(*ops, shape, DType::f32, {100});
  const HostTensor out = cache.run(qkv, 100, {{0, 0, 100}}, rope);
  for (const float x : out->span<float>()) ASSERT_TRUE(std::isfinite(x)) << "seed 17";
}

TEST(Attention, refuses_shapes_it_cannot_page) {
  auto ops = make_ops();
  const AttentionShape shapes[] = {{4, 3, 64, 1}, {4, 0, 64, 1}, {4, 2, 0, 1}};
  for (const AttentionShape& shape : shapes) {
    const auto cache = ops->attention().allocate_kv(4, 16, shape, DType::f32);
    ASSERT_FALSE(cache.ok()) << shape.heads << " heads of " << shape.head_dim;
    EXPECT_EQ(cache.error().code, ErrorCode::unsupported);
  }
  EXPECT_FALSE(ops->attention().allocate_kv(4, 24, {4, 2, 64, 1}, DType::f32).ok())
      << "block_size 24";
  EXPECT_FALSE(ops->attention().allocate_kv(4, 8, {4, 2, 64, 1}, DType::f32).ok())
      << "block_size 8";
  EXPECT_FALSE(ops->attention().allocate_kv(4, 16, {4, 2, 64, 1}, DType::f16).ok()) << "f16";
}

}  // namespace
}  // namespace troupe
