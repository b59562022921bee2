#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/unit/models/ops/cpu/ops_fixture.hpp"

namespace troupe {
namespace {

constexpr std::int32_t block_size = 16;
constexpr float eps = 1e-6F;

/// Input of latent attention for the tokens of one sequence.
struct Input {
  HostTensor latent_q;   // [tokens, heads * latent]
  HostTensor rotated_q;  // [tokens, heads * rotated]
  HostTensor kv;         // [tokens, latent + rotated]
  HostTensor norm;       // [latent]
  HostTensor rope;       // [tokens, rotated]
};

Input random_input(unsigned seed, std::int64_t tokens, const AttentionShape& shape) {
  Random random(seed);
  const std::int64_t rotated = shape.head_dim - shape.latent;
  Input input{random.normal({tokens, shape.heads * shape.latent}),
              random.normal({tokens, shape.heads * rotated}),
              random.normal({tokens, shape.head_dim}), random.normal({shape.latent}),
              floats({tokens, rotated})};
  for (std::int64_t p = 0; p < tokens; ++p) {
    for (std::int64_t i = 0; i < rotated / 2; ++i) {
      const double angle = static_cast<double>(p) * std::pow(10000.0, -2.0 * i / rotated);
      input.rope->as<float>()[p * rotated + i] = static_cast<float>(std::cos(angle));
      input.rope->as<float>()[p * rotated + rotated / 2 + i] = static_cast<float>(std::sin(angle));
    }
  }
  return input;
}

/// One layer's latent cache of one sequence, its blocks in reverse order.
class Cache {
 public:
  Cache(Ops& ops, const AttentionShape& shape, DType dtype, int tokens) : ops_(ops), shape_(shape) {
    table_.resize((tokens + block_size - 1) / block_size);
    std::iota(table_.rbegin(), table_.rend(), 0);
    auto pair = ops.attention().allocate_kv(static_cast<std::int64_t>(table_.size()), block_size,
                                            shape, dtype);
    EXPECT_TRUE(pair.ok()) << pair.error().message;
    keys_ = std::move(pair.value().first);
    EXPECT_TRUE(pair.value().second->empty());
    std::memset(keys_->data(), 0x7f, keys_->bytes());
  }

  HostTensor run(const Input& input, int begin, int count) {
    std::vector<std::int32_t> positions, slots;
    for (int i = begin; i < begin + count; ++i) {
      positions.push_back(i);
      slots.push_back(table_[i / block_size] * block_size + i % block_size);
    }
    const std::vector<SequenceSpan> spans{{0, count, begin, 0}};
    const HostTensor position = integers(positions), slot = integers(slots),
                     table = integers(table_);
    const AttentionBatch batch{position, slot, table, spans, block_size, {}};
    const KvLayer layer{keys_, {}};
    HostTensor q = floats({count, shape_.heads * shape_.head_dim});
    for (std::int64_t row = 0; row < count * shape_.heads; ++row) {
      std::copy_n(input.latent_q->as<float>() + (begin * shape_.heads + row) * shape_.latent,
                  shape_.latent, q->as<float>() + row * shape_.head_dim);
    }
    HostTensor out = floats({count, shape_.heads * shape_.latent});
    ops_.attention().latent_rope_store(input.rotated_q->rows(begin, count),
                                       input.kv->rows(begin, count), input.norm, eps, input.rope,
                                       shape_, batch, layer, q);
    ops_.attention().attend(q, shape_, batch, layer, out);
    return out;
  }

 private:
  Ops& ops_;
  AttentionShape shape_;
  std::vector<std::int32_t> table_;
  DeviceTensor keys_;
};

std::vector<double> rotated(const float* x, const float* rope, std::int64_t dim) {
  std::vector<double> out(dim);
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const double a = x[i], b = x[i + dim / 2], c = rope[i], s = rope[i + dim / 2];
    out[i] = a * c - b * s;
    out[i + dim / 2] = b * c + a * s;
  }
  return out;
}

/// All keys in double, rounded to `dtype`.
std::vector<std::vector<double>> reference_keys(const Input& input, const AttentionShape& shape,
                                                DType dtype) {
  const std::int64_t latent = shape.latent, turned = shape.head_dim - latent;
  std::vector<std::vector<double>> keys;
  for (std::int64_t t = 0; t < input.kv->shape()[0]; ++t) {
    const float* kv = input.kv->as<float>() + t * shape.head_dim;
    double squares = 0.0;
    for (std::int64_t i = 0; i < latent; ++i) squares += double{kv[i]} * kv[i];
    std::vector<double> key;
    for (std::int64_t i = 0; i < latent; ++i) {
      key.push_back(kv[i] / std::sqrt(squares / latent + eps) * input.norm->as<float>()[i]);
    }
    const auto rest = rotated(kv + latent, input.rope->as<float>() + t * turned, turned);
    key.insert(key.end(), rest.begin(), rest.end());
    if (dtype == DType::bf16) {
      for (double& x : key) x = to_float(to_bfloat16(static_cast<float>(x)));
    }
    keys.push_back(key);
  }
  return keys;
}

std::vector<double> reference(const Input& input, const AttentionShape& shape, DType dtype) {
  const std::int64_t latent = shape.latent, turned = shape.head_dim - latent;
  const auto keys = reference_keys(input, shape, dtype);
  std::vector<double> out;
  for (std::int64_t t = 0; t < input.kv->shape()[0]; ++t) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const float* q = input.latent_q->as<float>() + (t * shape.heads + h) * latent;
      const auto turned_q = rotated(input.rotated_q->as<float>() + (t * shape.heads + h) * turned,
                                    input.rope->as<float>() + t * turned, turned);
      std::vector<double> weight(t + 1), sum(latent);
      double total = 0.0;
      for (std::int64_t j = 0; j <= t; ++j) {
        double score = 0.0;
        for (std::int64_t d = 0; d < latent; ++d) score += q[d] * keys[j][d];
        for (std::int64_t d = 0; d < turned; ++d) score += turned_q[d] * keys[j][latent + d];
        total += weight[j] = std::exp(score * shape.scale);
      }
      for (std::int64_t j = 0; j <= t; ++j) {
        for (std::int64_t d = 0; d < latent; ++d) sum[d] += weight[j] / total * keys[j][d];
      }
      out.insert(out.end(), sum.begin(), sum.end());
    }
  }
  return out;
}

AttentionShape shape_of(std::int64_t heads, std::int64_t latent, std::int64_t turned) {
  AttentionShape shape{heads, 1, latent + turned, 0.05F};
  shape.latent = latent;
  return shape;
}

TEST(LatentAttention, agrees_with_double_precision) {
  for (const AttentionShape& shape :
       {shape_of(4, 32, 16), shape_of(3, 48, 32), shape_of(2, 512, 64), shape_of(128, 32, 16),
        shape_of(4, 40, 16), shape_of(3, 41, 6), shape_of(2, 600, 40)}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const CpuIsa isa : {CpuIsa::avx2, CpuIsa::best}) {
        SCOPED_TRACE(testing::Message()
                     << "seed 3, latent " << shape.latent << ", " << to_string(dtype));
        const Input input = random_input(3, 90, shape);
        auto ops = make_ops(2, DType::f32, isa);
        Cache cache(*ops, shape, dtype, 90);
        expect_near(cache.run(input, 0, 90), reference(input, shape, dtype),
                    dtype == DType::f32 ? 5e-6 : 1e-2);
      }
    }
  }
}

TEST(LatentAttention, gives_a_row_the_same_bits_however_the_prompt_was_chunked) {
  const AttentionShape shape = shape_of(4, 32, 16);
  const Input input = random_input(5, 200, shape);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    auto ops = make_ops(2);
    Cache whole_cache(*ops, shape, dtype, 200);
    const HostTensor whole = whole_cache.run(input, 0, 200);
    for (const int chunk : {1, 7, 64}) {
      SCOPED_TRACE(testing::Message() << "seed 5, chunks of " << chunk << ", " << to_string(dtype));
      Cache cache(*ops, shape, dtype, 200);
      for (int begin = 0; begin < 200; begin += chunk) {
        const int count = std::min(chunk, 200 - begin);
        expect_same_bits(cache.run(input, begin, count), whole->rows(begin, count));
      }
    }
  }
}

TEST(LatentAttention, gives_the_same_bits_with_avx2_and_avx512) {
  if (!cpu_supports(CpuIsa::avx512)) GTEST_SKIP() << "this CPU has no AVX-512";
  const AttentionShape shape = shape_of(8, 64, 16);
  const Input input = random_input(7, 140, shape);
  auto narrow = make_ops(1, DType::f32, CpuIsa::avx2);
  auto wide = make_ops(1, DType::f32, CpuIsa::avx512);
  Cache a(*narrow, shape, DType::f32, 140), b(*wide, shape, DType::f32, 140);
  expect_same_bits(a.run(input, 0, 140), b.run(input, 0, 140));
}

TEST(LatentAttention, refuses_a_latent_part_that_it_cannot_page) {
  auto ops = make_ops();
  AttentionShape shape = shape_of(4, 32, 16);
  shape.latent = 48;
  EXPECT_FALSE(ops->attention().allocate_kv(4, 16, shape, DType::f32).ok())
      << "nothing left to rotate";
  shape.latent = 32;
  shape.kv_heads = 2;
  EXPECT_FALSE(ops->attention().allocate_kv(4, 16, shape, DType::f32).ok()) << "two KV heads";
}

}  // namespace
}  // namespace troupe
