// Cascade attention: rows that share a prefix, beside the CPU's attention, and beside the GPU's
// that knows of no prefix.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/ops/gpu_attention.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

/// Rows of a batch that begin with the same blocks.
struct Sharers {
  std::int32_t rows = 0;
  std::int32_t prefix_blocks = 0;
  std::int32_t own_tokens = 1;  ///< of the first row; each further one has `step` more
  std::int32_t step = 0;
};

/// A cache filled with random keys and values, and sequences of one row that share blocks.
class Cascade : public BothDevices {
 protected:
  struct Case {
    std::int64_t heads, kv_heads, dim;
    std::int32_t block_size;
    std::vector<Sharers> sharers;
    std::int64_t window = 0;
    float soft_cap = 0.0F;
    bool has_sinks = false;
  };

  void SetUp() override {
    BothDevices::SetUp();
    if (!IsSkipped()) remake({.dtype = DType::bf16, .always_cascades = true});
  }
  void remake(const CudaOpsOptions& options) {
    gpu_.reset();
    auto made = make_cuda_ops(options);
    ASSERT_TRUE(made.ok()) << made.error().message;
    gpu_ = *std::move(made);
  }

  /// Sets up the batch of `c`.
  void make(const Case& c) {
    shape_ = {.heads = c.heads,
              .kv_heads = c.kv_heads,
              .head_dim = c.dim,
              .scale = 0.09F,
              .window = c.window,
              .soft_cap = c.soft_cap};
    gpu_shape_ = shape_;
    if (c.has_sinks) {
      sinks_ = random({c.heads}, 2.0F);
      gpu_sinks_ = exact(sinks_);
      shape_.sinks = sinks_;
      gpu_shape_.sinks = gpu_sinks_;
    }
    block_size_ = c.block_size;
    table_.clear();
    spans_.clear();
    std::int32_t next_block = 0;
    for (const Sharers& of : c.sharers) {
      const std::int32_t first_block = next_block;
      next_block += of.prefix_blocks;
      for (std::int32_t row = 0; row < of.rows; ++row) {
        const std::int32_t own = of.own_tokens + row * of.step;
        const auto at = static_cast<std::int32_t>(table_.size());
        for (std::int32_t b = 0; b < of.prefix_blocks; ++b) table_.push_back(first_block + b);
        for (std::int32_t b = 0; b * block_size_ < own; ++b) table_.push_back(next_block++);
        const std::int32_t position = of.prefix_blocks * block_size_ + own - 1;
        spans_.push_back({static_cast<std::int32_t>(spans_.size()), 1, position, at});
      }
    }
    const std::vector<std::int32_t> places = shuffled(next_block);
    for (std::int32_t& block : table_) block = places[static_cast<std::size_t>(block)];
    // Rows of a batch do not come prefix by prefix.
    std::ranges::shuffle(spans_, engine_);
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      spans_[i].first_row = static_cast<std::int32_t>(i);
    }
    fill_cache(next_block);
    const auto rows = std::ssize(spans_), entries = std::ssize(table_);
    tables_ = integers(table_, {entries});
    gpu_tables_ = exact(tables_);
    gpu_spans_ = exact(integers(numbers_of(spans_), {rows, 4}));
    zeros_ = integers(std::vector<std::int32_t>(static_cast<std::size_t>(rows)), {rows});
    gpu_zeros_ = exact(zeros_);
    q_ = random({rows, c.heads * c.dim});
    gpu_q_ = activation(q_);
  }
  AttentionBatch cpu_batch() const { return {zeros_, zeros_, tables_, spans_, block_size_, {}}; }
  /// `shares`: attention may look for prefixes.
  AttentionBatch gpu_batch(bool shares) const {
    AttentionBatch batch{gpu_zeros_, gpu_zeros_, gpu_tables_, spans_, block_size_, gpu_spans_};
    if (shares) batch.host_block_tables = table_;
    return batch;
  }
  HostTensor attend_on_cpu() {
    HostTensor out(DType::f32, q_->shape());
    cpu_->attention().attend(q_, shape_, cpu_batch(), cpu_layer_, out);
    return out;
  }
  DeviceTensor attend_on_gpu(const AttentionBatch& batch) {
    DeviceTensor out = room(GetParam(), q_->shape());
    gpu_->attention().attend(gpu_q_, gpu_shape_, batch, gpu_layer_, out);
    return out;
  }
  /// The CPU's attention, with sharing and without, of two layers each. Expects that a prefix is
  /// shared if `is_shared`.
  void compare(const Case& c, bool is_shared) {
    make(c);
    SCOPED_TRACE(fmt::format("{}, {} rows", describe(shape_), spans_.size()));
    const HostTensor expected = attend_on_cpu();
    for (const bool shares : {true, false, true}) {
      const AttentionBatch batch = gpu_batch(shares);
      const PlannedAttention planned = gpu_->attention().plan(gpu_shape_, batch);
      ASSERT_EQ(planned.layout, shares && is_shared ? 1 : 0);
      ASSERT_EQ(planned.shared_positions > 0, shares && is_shared);
      for (int layer = 0; layer < 2; ++layer) {
        expect_equal(attend_on_gpu(batch), expected, shares ? "shared" : "by itself");
      }
    }
  }

  AttentionShape shape_, gpu_shape_;
  std::int32_t block_size_ = 16;
  std::vector<std::int32_t> table_;
  std::vector<SequenceSpan> spans_;
  HostTensor sinks_, tables_, zeros_, q_, pool_;
  DeviceTensor gpu_sinks_, gpu_tables_, gpu_spans_, gpu_zeros_, gpu_q_;
  std::pair<DeviceTensor, DeviceTensor> cpu_kv_, gpu_kv_;
  KvLayer cpu_layer_, gpu_layer_;

 private:
  /// Rows of random numbers; many are needed, so they are parts of one pool.
  HostTensor rows_of_pool(std::int64_t count, std::int64_t width) {
    HostTensor rows(DType::f32, {count, width});
    const auto choices = static_cast<std::uint64_t>(pool_->elements() - width);
    for (std::int64_t row = 0; row < count; ++row) {
      std::copy_n(pool_->as<float>() + engine_() % choices, width, rows->rows(row, 1).as<float>());
    }
    return rows;
  }
  /// The two devices have layouts of their own: both are filled by rows for each slot.
  void fill_cache(std::int32_t blocks) {
    auto cpu_kv = cpu_->attention().allocate_kv(blocks, block_size_, shape_, GetParam());
    auto gpu_kv = gpu_->attention().allocate_kv(blocks, block_size_, shape_, GetParam());
    ASSERT_TRUE(cpu_kv.ok() && gpu_kv.ok());
    cpu_kv_ = *std::move(cpu_kv);
    gpu_kv_ = *std::move(gpu_kv);
    cpu_layer_ = {cpu_kv_.first, cpu_kv_.second};
    gpu_layer_ = {gpu_kv_.first, gpu_kv_.second};
    const std::int64_t width = (shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim;
    constexpr std::int32_t at_once = 4096;
    if (pool_.view().empty()) pool_ = random({1 << 20});
    const HostTensor rope(DType::f32, {1, shape_.head_dim});
    std::ranges::fill(rope->span<float>().first(static_cast<std::size_t>(shape_.head_dim / 2)),
                      1.0F);
    const DeviceTensor gpu_rope = exact(rope);
    for (std::int32_t begin = 0; begin < blocks * block_size_; begin += at_once) {
      const std::int32_t count = std::min(at_once, blocks * block_size_ - begin);
      std::vector<std::int32_t> slots(static_cast<std::size_t>(count));
      std::iota(slots.begin(), slots.end(), begin);
      const HostTensor slot = integers(slots, {count}),
                       at = integers(std::vector<std::int32_t>(slots.size()), {count}),
                       qkv = rows_of_pool(count, width),
                       unused(DType::f32, {count, shape_.heads * shape_.head_dim});
      const std::vector<SequenceSpan> spans{{0, count, 0, 0}};
      const DeviceTensor gpu_unused = room(GetParam(), unused->shape());
      cpu_->attention().norm_rope_store(qkv, {}, {}, 1e-6F, rope, shape_,
                                        AttentionBatch{at, slot, slot, spans, block_size_, {}},
                                        cpu_layer_, unused);
      const DeviceTensor gpu_at = exact(at), gpu_slot = exact(slot),
                         gpu_spans = exact(integers(numbers_of(spans), {1, 4}));
      gpu_->attention().norm_rope_store(
          activation(qkv), {}, {}, 1e-6F, gpu_rope, gpu_shape_,
          AttentionBatch{gpu_at, gpu_slot, gpu_slot, spans, block_size_, gpu_spans}, gpu_layer_,
          gpu_unused);
      ASSERT_TRUE(gpu_->stream().synchronize().ok());
    }
  }
};

/// A deterministic GPU, which must give the same bits with shared prefixes.
class DeterministicCascade : public Cascade {
 protected:
  void SetUp() override {
    BothDevices::SetUp();
    if (IsSkipped()) return;
    remake({.dtype = DType::bf16, .deterministic = true, .always_cascades = true});
  }
  /// Expects the same bits with sharing and without.
  void compare_bits(const Case& c, bool is_shared) {
    make(c);
    SCOPED_TRACE(fmt::format("{}, {} rows", describe(shape_), spans_.size()));
    HostTensor expected;
    for (const bool shares : {false, true, false, true}) {
      const AttentionBatch batch = gpu_batch(shares);
      ASSERT_EQ(gpu_->attention().plan(gpu_shape_, batch).layout, shares && is_shared ? 1 : 0);
      for (int layer = 0; layer < 2; ++layer) {
        const HostTensor found = back(attend_on_gpu(batch));
        if (expected.view().empty()) {
          expect_equal(exact(found), attend_on_cpu(), "by itself");
          expected = back(attend_on_gpu(batch));
        }
        for (std::int64_t i = 0; i < found->elements(); ++i) {
          ASSERT_EQ(found->as<float>()[i], expected->as<float>()[i])
              << "element " << i << (shares ? ", shared" : ", by itself");
        }
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Dtypes, DeterministicCascade, testing::Values(DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

INSTANTIATE_TEST_SUITE_P(Dtypes, Cascade, testing::Values(DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(Cascade, reads_a_prefix_once_for_rows_of_any_shape) {
  const std::vector<Sharers> common{{40, 150, 1, 7}};
  for (const Case& c : {
           Case{32, 8, 128, 16, {{24, 60, 5, 11}}},
           Case{16, 8, 128, 16, {{70, 61, 1, 3}}},
           Case{8, 8, 64, 16, {{130, 100, 2, 1}}},
           Case{14, 2, 64, 32, {{90, 140, 20, 5}}},
           Case{16, 2, 80, 16, common},
           Case{16, 4, 96, 16, common, 0, 0.0F, true},
           Case{28, 4, 112, 16, common, 0, 4.0F},
           Case{64, 4, 128, 16, common, 0, 3.0F, true},
           Case{40, 2, 128, 16, common},
           Case{32, 1, 64, 16, {{60, 280, 30, 2}}},
           Case{12, 4, 192, 16, common, 0, 0.0F, true},
           Case{16, 8, 256, 16, common, 0, 5.0F},
           Case{8, 8, 256, 32, {{40, 60, 33, 1}}},
       }) {
    compare(c, true);
  }
}

TEST_P(Cascade, reads_several_prefixes_beside_rows_that_share_none) {
  compare({32, 8, 128, 16, {{17, 130, 3, 9}, {3, 1, 700, 1}, {50, 70, 1, 2}, {5, 0, 900, 31}}},
          true);
  compare({16, 8, 128, 16, {{2, 200, 30, 1}, {2, 300, 1, 1}, {3, 250, 1, 200}, {1, 0, 1, 0}}},
          true);
}

TEST_P(Cascade, shares_a_prefix_among_one_row_and_256) {
  for (const std::int32_t rows : {2, 8, 9, 33, 128, 256}) {
    compare({16, 8, 128, 16, {{rows, 300 / rows + 3, 1, rows > 100 ? 1 : 30}}}, true);
  }
  compare({16, 8, 128, 16, {{1, 500, 1, 0}}}, false);
}

TEST_P(Cascade, leaves_prefixes_to_the_rows_where_reading_them_together_does_not_pay) {
  remake({.dtype = DType::bf16});
  compare({32, 8, 128, 16, {{24, 60, 5, 11}}}, false);
  compare({2, 1, 64, 16, {{30, 20, 9, 1}}}, false);
  compare({16, 8, 128, 16, {{70, 61, 1, 3}}}, true);
}

TEST_P(Cascade, shares_no_prefix_that_a_window_hides) {
  compare({32, 8, 128, 16, {{40, 100, 5, 11}}, 1000}, false);
  // It is as long as the longest row's context.
  compare({32, 8, 128, 16, {{40, 100, 5, 1}}, 100 * 16 + 45}, true);
}

TEST_P(Cascade, shares_no_prefix_of_sequences_with_several_rows) {
  make({32, 8, 128, 16, {{40, 100, 50, 0}}});
  std::int32_t row = 0;
  for (SequenceSpan& span : spans_) {
    span.first_row = row;
    span.rows = 2;
    --span.first_position;
    row += 2;
  }
  const AttentionBatch batch = gpu_batch(true);
  EXPECT_EQ(gpu_->attention().plan(gpu_shape_, batch).layout, 0);
}

TEST_P(Cascade, replays_captured_attention_with_other_prefixes) {
  const std::vector<Case> cases{{32, 8, 128, 16, {{32, 100, 5, 11}}},
                                {32, 8, 128, 16, {{10, 50, 1, 3}, {20, 90, 9, 1}, {2, 0, 5, 1}}},
                                {32, 8, 128, 16, {{32, 100, 30, 1}}}};
  make(cases[0]);
  constexpr std::int64_t rows = 32, entries = 32 * 140, blocks = 32 * 140;
  auto kv = gpu_->attention().allocate_kv(blocks, 16, gpu_shape_, GetParam());
  ASSERT_TRUE(kv.ok());
  const KvLayer layer{kv->first, kv->second};
  const DeviceTensor tables = room(DType::i32, {entries}), spans = room(DType::i32, {rows, 4}),
                     q = room(GetParam(), gpu_q_->shape()), out = room(GetParam(), q->shape());
  std::unique_ptr<CapturedGraph> graph;
  for (const Case& c : cases) {
    make(c);
    const HostTensor expected = attend_on_cpu();
    ASSERT_LE(gpu_kv_.first->bytes(), kv->first->bytes());
    const auto copy = [&](const Tensor& from, const Tensor& to) {
      const HostTensor host(from.dtype(), from.shape());
      gpu_->memory().download(from, host);
      ASSERT_TRUE(gpu_->stream().synchronize().ok());
      gpu_->memory().upload(host, Tensor(to.data(), from.dtype(), from.shape()));
      ASSERT_TRUE(gpu_->stream().synchronize().ok());
    };
    copy(gpu_kv_.first, kv->first);
    copy(gpu_kv_.second, kv->second);
    copy(gpu_tables_, tables);
    copy(gpu_spans_, spans);
    copy(gpu_q_, q);
    AttentionBatch batch{gpu_zeros_, gpu_zeros_, tables, spans_, 16, spans, true};
    batch.host_block_tables = table_;
    ASSERT_EQ(gpu_->attention().plan(gpu_shape_, batch).layout, 1);
    if (graph == nullptr) {
      gpu_->attention().attend(q, gpu_shape_, batch, layer, out);
      auto captured = gpu_->stream().capture([&]() -> Result<void> {
        gpu_->attention().attend(q, gpu_shape_, batch, layer, out);
        return {};
      });
      ASSERT_TRUE(captured.ok()) << captured.error().message;
      graph = *std::move(captured);
    }
    gpu_->stream().replay(*graph);
    expect_equal(out, expected, fmt::format("{} prefixes", c.sharers.size()));
  }
}

TEST_P(DeterministicCascade, gives_the_bits_of_rows_by_themselves) {
  for (const Case& c : {
           Case{32, 8, 128, 16, {{24, 100, 5, 11}}},
           Case{16, 8, 128, 16, {{70, 61, 1, 30}}},
           Case{8, 8, 64, 32, {{60, 70, 2, 40}}},
           Case{28, 4, 128, 16, {{33, 130, 3, 9}, {3, 1, 700, 1}, {20, 70, 1, 2}, {5, 0, 900, 31}}},
           Case{40, 2, 128, 16, {{40, 130, 600, 1}}, 0, 4.0F, true},
           Case{24, 4, 96, 16, {{30, 140, 1, 5}}, 0, 0.0F, true},
           Case{12, 4, 192, 16, {{30, 130, 1, 5}}},
           Case{16, 8, 256, 16, {{17, 129, 40, 1}}, 0, 3.0F},
           Case{16, 8, 128, 16, {{2, 300, 1, 1}}},
       }) {
    compare_bits(c, true);
  }
}

TEST_P(DeterministicCascade, shares_no_part_that_is_short_or_that_a_window_hides) {
  compare_bits({32, 8, 128, 16, {{50, 31, 5, 1}}}, false);
  compare_bits({32, 8, 128, 16, {{40, 100, 5, 1}}, 5000}, false);
}

}  // namespace
}  // namespace troupe
