// Experts of 4-bit codes, beside experts of the numbers that their kernel makes of the codes: the
// same to the last bit.
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "models/ops/expert_panels.hpp"
#include "tests/gpu/ops/both_devices.hpp"
#include "tests/support/random_codes.hpp"

namespace troupe {
namespace {

class CodedExperts : public BothDevices {
 protected:
  struct Both {
    std::vector<RandomCodes> owners;
    std::unique_ptr<GroupedLinear> codes, numbers;
  };
  /// Gives the halves of NVFP4's rows, and each expert, scales of their own: powers of two, so that
  /// the numbers are of bf16.
  static void set_row_scales(StoredMatrix& matrix, std::int64_t expert) {
    StoredPart& gates = matrix.parts.front();
    if (gates.matrix.format->tensor_scale.empty()) return;
    StoredPart ups = gates;
    ups.rows = {matrix.rows / 2, matrix.rows / 2};
    gates.rows.count = matrix.rows / 2;
    gates.matrix.tensor_scale = std::ldexp(1.0F, static_cast<int>(expert) - 12);
    ups.matrix.tensor_scale = std::ldexp(1.0F, static_cast<int>(expert) - 10);
    matrix.parts.push_back(ups);
  }
  /// The numbers of codes in bf16, times scales in bf16.
  static HostTensor rounded_numbers(const StoredMatrix& matrix) {
    const CodedForm form = coded_form(matrix, WeightEncoding::plain).form.value();
    HostTensor numbers(DType::bf16, {matrix.rows, matrix.columns});
    CodedRow row;
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
      read_coded_row(matrix, form, r, row);
      for (std::int64_t i = 0; i < matrix.columns; ++i) {
        const CodeScale scale = row.scales[static_cast<std::size_t>(form.group_of(i))];
        const float number = number_of(form.kind, row.codes[static_cast<std::size_t>(i)]);
        numbers->as<BFloat16>()[r * matrix.columns + i] =
            to_bfloat16((number - scale.zero) * to_float(to_bfloat16(scale.scale)) * row.row_scale);
      }
    }
    return numbers;
  }
  Both experts(const CodesCase& c, std::int64_t count, std::int64_t n, std::int64_t k) {
    Both both;
    std::vector<StoredMatrix> matrices;
    std::vector<HostTensor> numbers;
    for (std::int64_t e = 0; e < count; ++e) {
      both.owners.push_back(random_codes(engine_, c, n, k));
      matrices.push_back(both.owners.back().matrix);
      set_row_scales(matrices.back(), e);
      numbers.push_back(rounded_numbers(matrices.back()));
    }
    auto codes = gpu_->weights().load_grouped(matrices, 1, WeightEncoding::plain);
    EXPECT_TRUE(codes.ok()) << codes.error().message;
    const auto loaded = gpu_->weights().finish_loading({});
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    auto plain = gpu_->weights().prepare_grouped(
        std::vector<Tensor>(numbers.begin(), numbers.end()), 1, WeightEncoding::plain);
    EXPECT_TRUE(plain.ok()) << plain.error().message;
    both.codes = *std::move(codes);
    both.numbers = *std::move(plain);
    const auto panels = expert_panels(matrices, WeightEncoding::plain).panels;
    EXPECT_TRUE(panels.has_value());
    EXPECT_EQ(both.codes->kernel(), describe(*panels));
    EXPECT_EQ(both.codes->bytes(),
              static_cast<std::size_t>(count * (panels->code_bytes() + panels->scale_bytes())));
    EXPECT_EQ(both.codes->out_features(), n);
    EXPECT_EQ(both.codes->in_features(), k);
    EXPECT_EQ(both.codes->experts(), count);
    return both;
  }

  /// Rows sorted by expert, so many of each.
  struct Sorted {
    DeviceTensor offsets, source;
    std::int64_t rows = 0;
    ExpertBatch batch;
  };
  Sorted sort(const std::vector<std::int64_t>& rows_of, std::int64_t top_k) {
    std::vector<std::int32_t> chosen;
    for (std::size_t e = 0; e < rows_of.size(); ++e) {
      chosen.insert(chosen.end(), static_cast<std::size_t>(rows_of[e]),
                    static_cast<std::int32_t>(e));
    }
    while (std::ssize(chosen) % top_k != 0) chosen.push_back(0);
    std::ranges::shuffle(chosen, engine_);
    const auto assignments = std::ssize(chosen), experts = std::ssize(rows_of);
    Sorted sorted{
        room(DType::i32, {experts + 1}), room(DType::i32, {assignments}), assignments, {}};
    sorted.batch = {sorted.offsets, sorted.source};
    gpu_->moe().permute(exact(integers(chosen, {assignments / top_k, top_k})), 0, sorted.batch);
    EXPECT_TRUE(gpu_->stream().synchronize().ok());
    return sorted;
  }

  void expect_same_bits(const Tensor& of_codes, const Tensor& of_numbers, const std::string& what) {
    const HostTensor found = back(of_codes), wanted = back(of_numbers);
    const std::int64_t width = found->shape()[1];
    std::int64_t wrong = 0, first = -1;
    for (std::int64_t i = 0; i < found->elements(); ++i) {
      if (std::bit_cast<std::uint32_t>(found->as<float>()[i]) ==
          std::bit_cast<std::uint32_t>(wanted->as<float>()[i])) {
        continue;
      }
      if (wrong++ == 0) first = i;
      if (wrong < 6) {
        fmt::print("{}: row {}, column {}: expected {}, found {}\n", what, i / width, i % width,
                   wanted->as<float>()[i], found->as<float>()[i]);
      }
    }
    ASSERT_EQ(wrong, 0) << what << ": of " << found->elements() << ", first row " << first / width
                        << ", column " << first % width;
  }
};

INSTANTIATE_TEST_SUITE_P(Bf16, CodedExperts, testing::Values(DType::bf16));

TEST_P(CodedExperts, multiply_the_numbers_of_their_codes) {
  struct Shape {
    std::int64_t n, k;
  };
  // Experts without rows; all numbers of rows that are cut differently; n and k that are no
  // multiples of a tile.
  const std::vector<std::vector<std::int64_t>> batches{
      {1, 0, 2, 0},     {0, 9, 16, 17},      {33, 40, 31, 5},
      {64, 65, 79, 81}, {127, 128, 0, 129},  {300, 1, 513, 250},
      {0, 0, 0, 1000},  {128, 65, 192, 129}, {320, 384, 0, 448},
  };
  for (const CodesCase& c : codes_cases) {
    const bool is_packed_kind = is_packed(weight_format(c.scheme.coding).kind);
    if (!is_packed_kind || c.scheme.group_columns == 24) continue;
    for (const Shape& shape : {Shape{272, 208}, {1040, 704}, {64, 2880}, {528, 72}, {16, 1024}}) {
      const Both both = experts(c, 4, shape.n, shape.k);
      for (const auto& rows : batches) {
        for (const std::int64_t top_k : {1, 3}) {
          const Sorted sorted = sort(rows, top_k);
          const std::string what =
              fmt::format("{}, {} by {}, rows {} {} {} {} of {}", c.what, shape.n, shape.k, rows[0],
                          rows[1], rows[2], rows[3], top_k);
          const DeviceTensor x = activation(random({sorted.rows, shape.k}));
          for (const auto& [gather, scatter] : {std::pair{true, false}, {false, true}}) {
            const DType dtype = gather == (top_k == 1) ? DType::f32 : DType::bf16;
            const DeviceTensor of_codes = room(dtype, {sorted.rows, shape.n}),
                               of_numbers = room(dtype, {sorted.rows, shape.n});
            gpu_->moe().grouped_linear(*both.codes, x, sorted.batch, top_k, gather, scatter,
                                       of_codes);
            gpu_->moe().grouped_linear(*both.numbers, x, sorted.batch, top_k, gather, scatter,
                                       of_numbers);
            expect_same_bits(of_codes, of_numbers,
                             fmt::format("{}, gather {}, {}", what, gather, to_string(dtype)));
            if (HasFatalFailure()) return;
          }
          const DeviceTensor scratch = room(DType::bf16, {sorted.rows, shape.n}),
                             of_codes = room(DType::bf16, {sorted.rows, shape.n / 2}),
                             of_numbers = room(DType::bf16, {sorted.rows, shape.n / 2});
          gpu_->moe().grouped_gate_up(*both.codes, x, sorted.batch, top_k, scratch, of_codes);
          gpu_->moe().grouped_gate_up(*both.numbers, x, sorted.batch, top_k, scratch, of_numbers);
          expect_same_bits(of_codes, of_numbers, what + ", gated");
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(CodedExperts, add_biases_and_activate) {
  constexpr std::int64_t n = 304, k = 416, top_k = 2;
  const Both both = experts(codes_cases[11], 4, n, k);
  for (const auto& rows : {std::vector<std::int64_t>{1, 0, 2, 1},
                           {70, 9, 0, 33},
                           {200, 100, 1, 79},
                           {300, 129, 1, 70}}) {
    const Sorted sorted = sort(rows, top_k);
    const DeviceTensor x = activation(random({sorted.rows, k}, 0.3F)),
                       sums = room(DType::f32, {sorted.rows, n}),
                       out = room(DType::bf16, {sorted.rows, n / 2});
    const HostTensor bias = random({4, n}, 4.0F);
    const DeviceTensor gpu_bias = exact(bias);
    gpu_->moe().grouped_linear(*both.codes, x, sorted.batch, top_k, true, false, sums);
    const HostTensor before = back(sums), offsets = back(sorted.offsets);
    for (const bool has_bias : {true, false}) {
      for (const Activation activation : {Activation::clamped_gated, Activation::silu_gated}) {
        ASSERT_TRUE(gpu_->moe().grouped_activate(*both.codes, x, sorted.batch, top_k,
                                                 has_bias ? gpu_bias.view() : Tensor(), activation,
                                                 out));
        const HostTensor found = back(out);
        for (std::int64_t e = 0; e < 4; ++e) {
          for (std::int64_t row = offsets->as<std::int32_t>()[e];
               row < offsets->as<std::int32_t>()[e + 1]; ++row) {
            for (std::int64_t i = 0; i < n / 2; ++i) {
              const auto value_of = [&](std::int64_t column) {
                return double{before->as<float>()[row * n + column]} +
                       (has_bias ? bias->as<float>()[e * n + column] : 0.0F);
              };
              double gate = value_of(i), up = value_of(n / 2 + i), slope = 1.0, more = 0.0;
              if (activation == Activation::clamped_gated) {
                gate = std::min(gate, 7.0);
                up = std::clamp(up, -7.0, 7.0);
                slope = 1.702;
                more = 1.0;
              }
              const double wanted = gate / (1.0 + std::exp(-slope * gate)) * (up + more);
              ASSERT_NEAR(found->as<float>()[row * (n / 2) + i], wanted,
                          std::abs(wanted) / 128.0 + 1e-5)
                  << "row " << row << " of expert " << e << ", column " << i << ", bias "
                  << has_bias << ", activation " << static_cast<int>(activation);
            }
          }
        }
      }
    }
  }
}

TEST_P(CodedExperts, of_mxfp4_have_scales_of_any_size) {
  CodesCase c = codes_cases[11];
  for (const int exponent : {127 - 90, 127 - 60, 127, 127 + 20, 127 + 33}) {
    RandomCodes made = random_codes(engine_, c, 32, 64);
    std::fill_n(made.scales->as<std::uint8_t>(), made.scales->elements(),
                static_cast<std::uint8_t>(exponent));
    const std::vector<StoredMatrix> matrices{made.matrix};
    auto codes = gpu_->weights().load_grouped(matrices, 1, WeightEncoding::plain);
    ASSERT_TRUE(codes.ok()) << codes.error().message;
    ASSERT_TRUE(gpu_->weights().finish_loading({}).ok());
    const HostTensor numbers = rounded_numbers(made.matrix);
    auto plain =
        gpu_->weights().prepare_grouped(std::vector<Tensor>{numbers}, 1, WeightEncoding::plain);
    ASSERT_TRUE(plain.ok()) << plain.error().message;
    const Sorted sorted = sort({20}, 1);
    const DeviceTensor x = activation(random({20, 64})), of_codes = room(DType::f32, {20, 32}),
                       of_numbers = room(DType::f32, {20, 32});
    gpu_->moe().grouped_linear(**codes, x, sorted.batch, 1, true, false, of_codes);
    gpu_->moe().grouped_linear(**plain, x, sorted.batch, 1, true, false, of_numbers);
    expect_same_bits(of_codes, of_numbers, fmt::format("2^{}", exponent - 127));
  }
}

}  // namespace
}  // namespace troupe
