// Matrices in 8-bit codes that are widened, beside products of the same codes with rows that are
// not rounded, on the CPU; and the largest activations that are rounded before.
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "models/ops/coded_panels.hpp"
#include "models/ops/cuda/w8a8_cuda_linear.hpp"
#include "models/ops/fp8_rows.hpp"
#include "models/ops/stored_matrix.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

class WidenedFp8 : public BothDevices {
 protected:
  void SetUp() override {
    BothDevices::SetUp();
    if (IsSkipped()) return;
    auto cuda = make_cuda_ops(
        {.device = 0, .dtype = DType::bf16, .encoding = WeightEncoding::fp8, .widens_codes = true});
    ASSERT_TRUE(cuda.ok()) << cuda.error().message;
    gpu_ = *std::move(cuda);
    auto cpu = make_cpu_ops({.threads = 4, .dtype = DType::f32});
    ASSERT_TRUE(cpu.ok()) << cpu.error().message;
    cpu_ = *std::move(cpu);
  }

  /// The matrix on the GPU, which rounds rows, and on the CPU, which does not, in the same codes.
  void make(std::int64_t n, std::int64_t k) {
    const HostTensor weight = narrow(random({n, k}, 1.0F / std::sqrt(static_cast<float>(k))));
    auto of_gpu = gpu_->weights().prepare(weight, 1, WeightEncoding::fp8);
    auto of_cpu = cpu_->weights().prepare(weight, 1, WeightEncoding::fp8);
    ASSERT_TRUE(of_gpu.ok() && of_cpu.ok());
    gpu_weight_ = *std::move(of_gpu);
    cpu_weight_ = *std::move(of_cpu);
    ASSERT_TRUE(gpu_weight_->rounds_rows());
  }

  std::unique_ptr<Linear> gpu_weight_, cpu_weight_;
};

INSTANTIATE_TEST_SUITE_P(Bf16, WidenedFp8, testing::Values(DType::bf16));

TEST_P(WidenedFp8, products_are_those_of_rows_that_are_not_rounded_at_any_number_of_rows) {
  for (const auto& [n, k] : {std::pair{64, 64},
                             {1024, 2048},
                             {1536, 1040},
                             {4112, 528},
                             {80, 8192},
                             {16, 16},
                             {6144, 4096}}) {
    make(n, k);
    ASSERT_TRUE(gpu_weight_->rounds_rows());
    const HostTensor x = random({600, k});
    // What 8 bits of a row with such a number leave of the others is far from right.
    for (std::int64_t r = 0; r < 600; ++r) x->as<float>()[r * k + r % k] = 4096.0F;
    const HostTensor expected(DType::f32, {600, n});
    cpu_->dense().linear(*cpu_weight_, x, expected);
    const DeviceTensor gpu_x = activation(x);
    const auto errors = [&](std::int64_t rows, DType dtype) {
      const DeviceTensor out = room(dtype, {rows, n});
      gpu_->dense().linear(*gpu_weight_, gpu_x->rows(0, rows), out);
      const HostTensor found = back(out);
      double sum = 0;
      for (std::int64_t i = 0; i < rows * n; ++i) {
        sum += std::abs(found->as<float>()[i] - expected->as<float>()[i]);
      }
      return sum / static_cast<double>(rows * n);
    };
    const double rounding = errors(40, DType::f32);
    ASSERT_TRUE(gpu_->weights().widen(*gpu_weight_).ok());
    ASSERT_TRUE(gpu_->stream().synchronize().ok());
    EXPECT_FALSE(gpu_weight_->rounds_rows());
    EXPECT_NE(gpu_weight_->kernel().find("W8A16"), std::string::npos) << gpu_weight_->kernel();
    EXPECT_LT(errors(40, DType::f32), 0.3 * rounding) << n << " by " << k;
    for (const std::int64_t rows : {1, 2, 3, 8, 17, 64, 65, 128, 129, 384, 385, 600}) {
      const DeviceTensor out = room(DType::f32, {rows, n}), own = room(DType::bf16, {rows, n});
      gpu_->dense().linear(*gpu_weight_, gpu_x->rows(0, rows), out);
      gpu_->dense().linear(*gpu_weight_, gpu_x->rows(0, rows), own);
      const std::string what = fmt::format("{} rows of {} by {}", rows, k, n);
      expect_equal(out, expected->rows(0, rows), what);
      expect_equal(own, expected->rows(0, rows), what);
    }
    ASSERT_TRUE(gpu_->weights().widen(*gpu_weight_).ok()) << "again, which changes nothing";
    const DeviceTensor out = room(DType::f32, {5, n});
    gpu_->dense().linear(*gpu_weight_, gpu_x->rows(0, 5), out);
    expect_equal(out, expected->rows(0, 5), "widened twice");
  }
}

TEST_P(WidenedFp8, products_are_gated) {
  for (const auto& [inner, k] : {std::pair{48, 80}, {1000, 272}, {1024, 1024}}) {
    make(2 * inner, k);
    ASSERT_TRUE(gpu_weight_->rounds_rows());
    ASSERT_TRUE(gpu_->weights().widen(*gpu_weight_).ok());
    const HostTensor x = random({130, k});
    const DeviceTensor gpu_x = activation(x);
    for (const std::int64_t rows : {1, 2, 9, 64, 90, 130}) {
      const HostTensor cpu_scratch(DType::f32, {rows, 2 * inner}),
          expected(DType::f32, {rows, inner});
      cpu_->dense().linear_gate_up(*cpu_weight_, x->rows(0, rows), cpu_scratch, expected);
      const DeviceTensor scratch = room(DType::bf16, {rows, 2 * inner}),
                         out = room(DType::bf16, {rows, inner});
      gpu_->dense().linear_gate_up(*gpu_weight_, gpu_x->rows(0, rows), scratch, out);
      expect_equal(out, expected, fmt::format("{} rows of {} by 2 x {}", rows, k, inner));
    }
  }
}

TEST_P(WidenedFp8, codes_are_arranged_in_place_whatever_memory_there_is_beside_them) {
  constexpr std::int64_t n = 80;
  for (const std::int64_t k : {128, 144, 400, 16}) {
    for (const std::int64_t rows_at_once : {8, 24, 80}) {
      const CodedPanels layout{.kind = CodeKind::e4m3, .rows = n, .columns = k};
      const CodedForm form{.kind = CodeKind::e4m3};
      std::vector<CodedRow> rows(n);
      const HostTensor codes(DType::u8, {layout.code_bytes()}), scales(DType::f32, {n});
      for (std::int64_t r = 0; r < n; ++r) {
        CodedRow& row = rows[static_cast<std::size_t>(r)];
        row.scales = {CodeScale{.scale = 1.0F}};
        for (std::int64_t i = 0; i < k; ++i) {
          row.codes.push_back(static_cast<std::uint8_t>((r * 37 + i * 11) % 0x7F));
          codes->as<std::uint8_t>()[r * k + i] = row.codes.back();
        }
        scales->as<float>()[r] = static_cast<float>(r) + 0.5F;
      }
      codes->as<std::uint8_t>()[11 * k + k - 1] = rows[11].codes[static_cast<std::size_t>(k - 1)] =
          0xFF;  // not a number
      const DeviceTensor memory = exact(codes);
      auto decoded = gpu_->memory().allocate(DType::u8, {rows_at_once * k});
      ASSERT_TRUE(decoded.ok());
      W8a8CudaLinear linear(
          {DeviceTensor(memory->rows(0, n * k).reshaped({n, k}), [](void*) {}), exact(scales)},
          std::make_shared<const DeviceTensor>(*std::move(decoded)));
      const Tensor row_scales = linear.codes()->scales;
      ASSERT_TRUE(gpu_->stream().synchronize().ok());
      ASSERT_TRUE(linear.widen(nullptr).ok());
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      EXPECT_EQ(linear.codes(), nullptr);
      EXPECT_EQ(linear.out_features(), n);
      const HostTensor found = back(memory), found_scales = back(row_scales);
      std::vector<std::byte> expected(static_cast<std::size_t>(layout.panel_bytes()));
      for (std::int64_t panel = 0; panel < n / panel_rows; ++panel) {
        write_panel(std::span(rows).subspan(static_cast<std::size_t>(panel * panel_rows),
                                            static_cast<std::size_t>(panel_rows)),
                    form, layout, expected.data());
        for (std::int64_t i = 0; i < layout.panel_bytes(); ++i) {
          ASSERT_EQ(found->as<std::uint8_t>()[panel * layout.panel_bytes() + i],
                    static_cast<std::uint8_t>(expected[static_cast<std::size_t>(i)]))
              << "k " << k << ", " << rows_at_once << " rows at once, panel " << panel << ", byte "
              << i;
        }
      }
      for (std::int64_t r = 0; r < n; ++r) {
        const float scale = found_scales->as<float>()[r];
        EXPECT_TRUE(r == 11 ? std::isnan(scale) : scale == static_cast<float>(r) + 0.5F)
            << "row " << r << ": " << scale;
      }
    }
  }
}

TEST_P(WidenedFp8, rows_tell_their_largest_magnitude_whichever_kernel_rounds_them) {
  constexpr std::int64_t k = 1024, n = 256;
  make(n, k);
  ASSERT_TRUE(gpu_weight_->rounds_rows());
  const HostTensor zero(DType::f32, {1});
  const DeviceTensor peak = exact(zero);
  const DeviceTensor norm = exact(random({k}));
  const auto expect_peak = [&](float wanted, const std::string& what) {
    EXPECT_EQ(back(peak)->as<float>()[0], wanted) << what;
    gpu_->memory().upload(zero, peak);
    EXPECT_TRUE(gpu_->stream().synchronize().ok());
  };
  for (const std::int64_t rows : {1, 40, 200}) {
    const DeviceTensor out = room(DType::f32, {rows, n});
    HostTensor x = random({rows, k});
    x->as<float>()[rows * k - 3] = -3008.0F;
    const DeviceTensor gpu_x = activation(x);
    gpu_->dense().watch_rows(peak);
    gpu_->dense().linear(*gpu_weight_, gpu_x, out);
    expect_peak(3008.0F, fmt::format("{} rows", rows));
    gpu_->dense().linear(*gpu_weight_, activation(random({rows, k})), out);
    const float of_others = back(peak)->as<float>()[0];
    EXPECT_TRUE(of_others > 2.0F && of_others < 10.0F) << of_others;
    gpu_->memory().upload(zero, peak);
    // By a norm, whose codes the product takes.
    const DeviceTensor made = room(DType::bf16, {rows, k});
    gpu_->dense().rms_norm(gpu_x, norm, 1e-6F, made);
    gpu_->dense().linear(*gpu_weight_, made, out);
    const HostTensor normed = back(made);
    float largest = 0.0F;
    for (const float value : normed->span<float>()) largest = std::max(largest, std::abs(value));
    expect_peak(largest, fmt::format("a norm of {} rows", rows));
    // By an activation.
    const DeviceTensor gates = activation(random({rows, 2 * k}, 3.0F));
    gpu_->dense().silu_mul(gates, made);
    gpu_->dense().linear(*gpu_weight_, made, out);
    largest = 0.0F;
    const HostTensor activated = back(made);
    for (const float value : activated->span<float>()) largest = std::max(largest, std::abs(value));
    expect_peak(largest, fmt::format("an activation of {} rows", rows));
    for (const float bad : {std::numeric_limits<float>::infinity(), NAN}) {
      x->as<float>()[5] = bad;
      gpu_->dense().linear(*gpu_weight_, activation(x), out);
      expect_peak(std::numeric_limits<float>::infinity(), "not finite");
    }
    gpu_->dense().watch_rows({});
    gpu_->dense().linear(*gpu_weight_, gpu_x, out);
    expect_peak(0.0F, "not watched");
  }
}

/// Experts in 8-bit codes on both devices; those of the CPU do not round rows.
class WidenedExperts : public WidenedFp8 {
 protected:
  std::unique_ptr<GroupedLinear> on(Ops& ops, const std::vector<Tensor>& weights) {
    auto made = ops.weights().prepare_grouped(weights, 1, WeightEncoding::fp8);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return *std::move(made);
  }
  void make_experts(std::int64_t experts, std::int64_t n, std::int64_t k) {
    std::vector<HostTensor> numbers;
    for (std::int64_t e = 0; e < experts; ++e) {
      numbers.push_back(narrow(random({n, k}, 1.0F / std::sqrt(static_cast<float>(k)))));
    }
    const std::vector<Tensor> weights(numbers.begin(), numbers.end());
    of_gpu_ = on(*gpu_, weights);
    of_cpu_ = on(*cpu_, weights);
    ASSERT_TRUE(of_gpu_->rounds_rows());
  }

  std::unique_ptr<GroupedLinear> of_gpu_, of_cpu_;
};

INSTANTIATE_TEST_SUITE_P(Bf16, WidenedExperts, testing::Values(DType::bf16));

TEST_P(WidenedExperts, multiply_rows_that_are_not_rounded) {
  constexpr std::int64_t experts = 5, top_k = 2;
  for (const auto& [n, k] : {std::pair{64, 64}, {272, 208}, {1040, 704}, {528, 144}, {48, 2048}}) {
    make_experts(experts, n, k);
    for (const std::int64_t tokens : {1, 3, 9, 40, 130, 700}) {
      const std::int64_t rows = tokens * top_k;
      const HostTensor x = random({tokens, k});
      // What 8 bits of a row with such a number leave of the others is far from right.
      for (std::int64_t r = 0; r < tokens; ++r) x->as<float>()[r * k + r % k] = 4096.0F;
      std::vector<std::int32_t> chosen;
      for (std::int64_t i = 0; i < tokens; ++i) {
        chosen.push_back(static_cast<std::int32_t>(i % experts));
        chosen.push_back(static_cast<std::int32_t>((i + 1 + i / 7 % 3) % experts));
      }
      const HostTensor ids = integers(chosen, {tokens, top_k});
      const DeviceTensor offsets = room(DType::i32, {experts + 1}),
                         source = room(DType::i32, {rows});
      const ExpertBatch batch{offsets, source};
      gpu_->moe().permute(exact(ids), 0, batch);
      const HostTensor cpu_offsets(DType::i32, {experts + 1}), cpu_source(DType::i32, {rows});
      const ExpertBatch cpu_batch{cpu_offsets, cpu_source};
      cpu_->moe().permute(ids, 0, cpu_batch);
      const HostTensor expected(DType::f32, {rows, n}), cpu_scratch(DType::f32, {rows, n}),
          expected_gated(DType::f32, {rows, n / 2});
      cpu_->moe().grouped_linear(*of_cpu_, x, cpu_batch, top_k, true, true, expected);
      cpu_->moe().grouped_gate_up(*of_cpu_, x, cpu_batch, top_k, cpu_scratch, expected_gated);
      const DeviceTensor gpu_x = activation(x);
      const auto error_of = [&] {
        const DeviceTensor out = room(DType::f32, {rows, n});
        gpu_->moe().grouped_linear(*of_gpu_, gpu_x, batch, top_k, true, true, out);
        const HostTensor found = back(out);
        double sum = 0;
        for (std::int64_t i = 0; i < rows * n; ++i) {
          sum += std::abs(found->as<float>()[i] - expected->as<float>()[i]);
        }
        return sum / static_cast<double>(rows * n);
      };
      const std::string what = fmt::format("{} tokens, {} by {}", tokens, n, k);
      const double rounding = error_of();
      if (of_gpu_->rounds_rows()) {
        ASSERT_TRUE(gpu_->weights().widen(*of_gpu_).ok());
        ASSERT_TRUE(gpu_->stream().synchronize().ok());
        EXPECT_FALSE(of_gpu_->rounds_rows());
        EXPECT_NE(of_gpu_->kernel().find("W8A16"), std::string::npos) << of_gpu_->kernel();
        EXPECT_EQ(of_gpu_->experts(), experts);
        EXPECT_EQ(of_gpu_->out_features(), n);
        EXPECT_EQ(of_gpu_->in_features(), k);
        EXPECT_LT(error_of(), 0.3 * rounding) << what;
      }
      const DeviceTensor out = room(DType::f32, {rows, n}), own = room(DType::bf16, {rows, n}),
                         scratch = room(DType::bf16, {rows, n}),
                         gated = room(DType::bf16, {rows, n / 2});
      gpu_->moe().grouped_linear(*of_gpu_, gpu_x, batch, top_k, true, true, out);
      gpu_->moe().grouped_linear(*of_gpu_, gpu_x, batch, top_k, true, true, own);
      gpu_->moe().grouped_gate_up(*of_gpu_, gpu_x, batch, top_k, scratch, gated);
      expect_equal(out, expected, what);
      expect_equal(own, expected, what + ", bf16");
      expect_equal(gated, expected_gated, what + ", gated");
      if (HasFatalFailure()) return;
    }
    ASSERT_TRUE(gpu_->weights().widen(*of_gpu_).ok()) << "again, which changes nothing";
  }
}

TEST_P(WidenedExperts, tell_the_largest_magnitude_of_rows_that_are_rounded) {
  constexpr std::int64_t experts = 3, n = 128, k = 256, tokens = 40;
  make_experts(experts, n, k);
  const HostTensor zero(DType::f32, {1});
  const DeviceTensor peak = exact(zero);
  HostTensor x = random({tokens, k});
  x->as<float>()[7 * k + 3] = -3008.0F;
  std::vector<std::int32_t> chosen(tokens);
  for (std::size_t i = 0; i < chosen.size(); ++i)
    chosen[i] = static_cast<std::int32_t>(i % experts);
  const DeviceTensor offsets = room(DType::i32, {experts + 1}), source = room(DType::i32, {tokens}),
                     out = room(DType::f32, {tokens, n});
  const ExpertBatch batch{offsets, source};
  gpu_->moe().permute(exact(integers(chosen, {tokens, 1})), 0, batch);
  for (const bool gather : {true, false}) {
    gpu_->memory().upload(zero, peak);
    ASSERT_TRUE(gpu_->stream().synchronize().ok());
    gpu_->moe().grouped_linear(*of_gpu_, activation(x), batch, 1, gather, false, out);
    EXPECT_EQ(back(peak)->as<float>()[0], 0.0F) << "not watched";
    gpu_->dense().watch_rows(peak);
    gpu_->moe().grouped_linear(*of_gpu_, activation(x), batch, 1, gather, false, out);
    gpu_->dense().watch_rows({});
    EXPECT_EQ(back(peak)->as<float>()[0], 3008.0F) << "gather " << gather;
  }
}

}  // namespace
}  // namespace troupe
