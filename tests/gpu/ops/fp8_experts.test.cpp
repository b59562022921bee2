// Experts in 8-bit codes, beside sums in double of the same codes.
#include <array>

#include <fmt/format.h>

#include "models/ops/cuda/cuda_linear.hpp"
#include "models/ops/fp8_rows.hpp"
#include "models/ops/stored_matrix.hpp"
#include "models/ops/weight_format.hpp"
#include "tests/gpu/ops/both_devices.hpp"

namespace troupe {
namespace {

/// The numbers of the codes of a matrix's rows.
HostTensor coded(const Tensor& x) {
  HostTensor numbers(DType::f32, x.shape());
  const std::int64_t k = x[x.shape().rank() - 1];
  for (std::int64_t begin = 0; begin < x.elements(); begin += k) {
    const std::span<const float> row(x.as<float>() + begin, static_cast<std::size_t>(k));
    const float scale = fp8_row_scale(largest_magnitude(row)), factor = 1.0F / scale;
    for (std::int64_t i = 0; i < k; ++i) {
      const std::uint8_t code = float_to_e4m3(row[static_cast<std::size_t>(i)] * factor);
      numbers->as<float>()[begin + i] = e4m3_to_float(code) * scale;
    }
  }
  return numbers;
}

/// A product in double, and the size of its terms: the root of the sum of their squares.
struct Sum {
  double value = 0.0, size = 0.0;
};
Sum product(const float* a, const float* b, std::int64_t k) {
  Sum sum;
  for (std::int64_t i = 0; i < k; ++i) {
    const double term = static_cast<double>(a[i]) * static_cast<double>(b[i]);
    sum.value += term;
    sum.size += term * term;
  }
  sum.size = std::sqrt(sum.size);
  return sum;
}
double silu(double gate) { return gate / (1.0 + std::exp(-gate)); }

class Fp8Experts : public BothDevices {
 protected:
  void SetUp() override {
    BothDevices::SetUp();
    if (IsSkipped()) return;
    auto cuda = make_cuda_ops({.device = 0, .dtype = DType::bf16, .encoding = WeightEncoding::fp8});
    ASSERT_TRUE(cuda.ok()) << cuda.error().message;
    gpu_ = *std::move(cuda);
  }

  /// Experts of both: the codes on the GPU, and their numbers [experts, n, k].
  struct Both {
    std::unique_ptr<GroupedLinear> gpu;
    HostTensor numbers;
  };
  Both experts(std::int64_t count, std::int64_t n, std::int64_t k) {
    HostTensor all(DType::f32, {count, n, k});
    std::vector<HostTensor> owners;
    for (std::int64_t e = 0; e < count; ++e) {
      const HostTensor one = random({n, k}, 0.1F);
      std::copy_n(one->as<float>(), n * k, all->rows(e, 1).as<float>());
      owners.push_back(narrow(one));
    }
    auto made = gpu_->weights().prepare_grouped(std::vector<Tensor>(owners.begin(), owners.end()),
                                                1, WeightEncoding::fp8);
    EXPECT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ((*made)->kernel(), rounding_kernel(CodeKind::e4m3));
    EXPECT_EQ((*made)->bytes(), static_cast<std::size_t>(count * n * (k + 4)));
    return {*std::move(made), coded(all)};
  }

  /// The experts of tokens that choose among the first `from`, and these sorted.
  struct Sorted {
    HostTensor ids, offsets, source;
    DeviceTensor gpu_offsets, gpu_source;
    ExpertBatch gpu;
  };
  Sorted sort(const HostTensor& ids, std::int64_t first, std::int64_t local) {
    Sorted sorted{copy_of(ids),
                  HostTensor(DType::i32, {local + 1}),
                  HostTensor(DType::i32, {ids->elements()}),
                  room(DType::i32, {local + 1}),
                  {},
                  {}};
    sorted.gpu_source = exact(sorted.source);
    sorted.gpu = {sorted.gpu_offsets, sorted.gpu_source};
    cpu_->moe().permute(ids, first, {sorted.offsets, sorted.source});
    gpu_->moe().permute(exact(ids), first, sorted.gpu);
    EXPECT_TRUE(gpu_->stream().synchronize().ok());
    return sorted;
  }
  HostTensor choose(std::int64_t tokens, std::int64_t top_k, std::int64_t from) {
    HostTensor ids(DType::i32, {tokens, top_k});
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::ranges::copy_n(shuffled(from).begin(), top_k, ids->rows(t, 1).as<std::int32_t>());
    }
    return ids;
  }

  /// Calls check(sorted row, its expert, source) for the rows of a batch.
  template <class Check>
  static void for_rows(const Sorted& sorted, const Check& check) {
    const auto* const offsets = sorted.offsets->as<std::int32_t>();
    for (std::int64_t e = 0; e + 1 < sorted.offsets->elements(); ++e) {
      for (std::int64_t row = offsets[e]; row < offsets[e + 1]; ++row) {
        check(row, e, std::int64_t{sorted.source->as<std::int32_t>()[row]});
        if (HasFatalFailure()) return;
      }
    }
  }

  /// Expects a sum, of f32 or rounded to bf16: the tensor cores add codes' products with fewer bits
  /// than fp32 has.
  void expect_sum(float found, const Sum& wanted, bool is_rounded, const std::string& what) {
    constexpr double of_terms = 5e-3;
    const double error = std::abs(found - wanted.value);
    const double rounding = is_rounded ? std::abs(wanted.value) / 256.0 : 0.0;
    worst_ = std::max(worst_, (error - rounding) / (wanted.size + 1e-30));
    ASSERT_LE(error, of_terms * wanted.size + rounding + 1e-6)
        << what << ": expected " << wanted.value << " of terms of " << wanted.size << ", found "
        << found;
  }
  /// Expects silu(gate) * up, rounded to bf16.
  void expect_gated(float found, const Sum& gate, const Sum& up, const std::string& what) {
    const double wanted = silu(gate.value) * up.value;
    const double slack = 5e-3 * (gate.size * std::abs(up.value) * 1.2 +
                                 up.size * std::abs(silu(gate.value)) + gate.size * up.size);
    ASSERT_LE(std::abs(found - wanted), slack + std::abs(wanted) / 128.0 + 1e-6)
        << what << ": expected " << wanted << ", found " << found;
  }

  double worst_ = 0.0;  // error as a part of the terms' size
};

INSTANTIATE_TEST_SUITE_P(Bf16, Fp8Experts, testing::Values(DType::bf16));

TEST_P(Fp8Experts, multiply_rows_at_odd_sizes) {
  struct Case {
    std::int64_t tokens, top_k, experts, chosen_from, n, k;
  };
  // One token; experts without rows; all rows to two of them, or to one; many rows per expert; n
  // and k that are no multiples of a tile.
  for (const Case& c :
       {Case{1, 8, 128, 128, 96, 64}, Case{40, 2, 7, 3, 272, 208}, Case{300, 2, 4, 2, 512, 768},
        Case{150, 4, 16, 16, 80, 48}, Case{64, 8, 128, 128, 128, 64}, Case{500, 3, 5, 5, 272, 1040},
        Case{900, 1, 3, 1, 48, 80}, Case{33, 2, 3, 3, 1408, 704}, Case{20, 1, 2, 2, 704, 144},
        Case{12, 1, 2, 2, 16, 16}, Case{700, 1, 2, 2, 32, 4096}}) {
    const std::string what = fmt::format("{} tokens x {} of {} experts of {} x {}", c.tokens,
                                         c.top_k, c.experts, c.n, c.k);
    const std::int64_t assignments = c.tokens * c.top_k;
    const Sorted sorted = sort(choose(c.tokens, c.top_k, c.chosen_from), 0, c.experts);
    const Both weights = experts(c.experts, c.n, c.k);
    const HostTensor x = random({assignments, c.k}), codes_of_x = coded(x);
    const DeviceTensor gpu_x = activation(x);
    const auto weight = [&](std::int64_t e, std::int64_t row) {
      return weights.numbers->as<float>() + (e * c.n + row) * c.k;
    };
    worst_ = 0.0;
    for (const auto& [gather, scatter] : {std::pair{true, false}, {false, true}}) {
      for (const DType out_dtype : {DType::f32, DType::bf16}) {
        const DeviceTensor out = room(out_dtype, {assignments, c.n});
        gpu_->moe().grouped_linear(*weights.gpu, gpu_x, sorted.gpu, c.top_k, gather, scatter, out);
        const HostTensor found = back(out);
        for_rows(sorted, [&](std::int64_t row, std::int64_t e, std::int64_t source) {
          const std::int64_t from = gather ? source / c.top_k : row, to = scatter ? source : row;
          for (std::int64_t i = 0; i < c.n && !HasFatalFailure(); i += 1 + (row + i) % 3) {
            expect_sum(found->as<float>()[to * c.n + i],
                       product(codes_of_x->as<float>() + from * c.k, weight(e, i), c.k),
                       out_dtype == DType::bf16,
                       fmt::format("{}, {}, gather {}, row {} of expert {}, column {}", what,
                                   to_string(out_dtype), gather, row, e, i));
          }
        });
        if (HasFatalFailure()) return;
      }
    }
    fmt::print("{}: errors up to {:.5f} of the terms' size\n", what, worst_);
    const std::int64_t inner = c.n / 2;
    const DeviceTensor scratch = room(DType::bf16, {assignments, c.n}),
                       out = room(DType::bf16, {assignments, inner});
    gpu_->moe().grouped_gate_up(*weights.gpu, gpu_x, sorted.gpu, c.top_k, scratch, out);
    const HostTensor found = back(out);
    for_rows(sorted, [&](std::int64_t row, std::int64_t e, std::int64_t source) {
      const float* const from = codes_of_x->as<float>() + source / c.top_k * c.k;
      for (std::int64_t i = 0; i < inner && !HasFatalFailure(); i += 1 + (row + i) % 3) {
        expect_gated(found->as<float>()[row * inner + i], product(from, weight(e, i), c.k),
                     product(from, weight(e, inner + i), c.k),
                     fmt::format("{}, gated, row {} of expert {}, column {}", what, row, e, i));
      }
    });
    if (HasFatalFailure()) return;
  }
}

TEST_P(Fp8Experts, multiply_rows_alike_however_they_are_cut) {
  const std::vector<std::int64_t> rows{0, 1, 127, 128, 129, 0, 256, 257, 64, 65, 385, 7};
  const auto local = static_cast<std::int64_t>(rows.size());
  std::vector<std::int32_t> chosen;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    chosen.insert(chosen.end(), static_cast<std::size_t>(rows[e]), static_cast<std::int32_t>(e));
  }
  std::ranges::shuffle(chosen, engine_);
  const auto tokens = static_cast<std::int64_t>(chosen.size());
  const Sorted sorted = sort(integers(chosen, {tokens, 1}), 0, local);
  for (const auto& [n, k] : {std::pair{272, 208}, {1040, 80}, {512, 1280}}) {
    const Both weights = experts(local, n, k);
    const DeviceTensor x = activation(random({tokens, k})),
                       scratch = room(DType::bf16, {tokens, n});
    std::vector<HostTensor> of_first;
    // The expected rows select how experts are cut: by 16, 32, 64, 80 and 256 rows.
    for (const std::int64_t likely : {local, 20 * local, 50 * local, 70 * local, 1000 * local}) {
      const ExpertBatch batch{sorted.gpu_offsets, sorted.gpu_source, likely};
      const DeviceTensor plain = room(DType::f32, {tokens, n}),
                         gated = room(DType::bf16, {tokens, n / 2});
      gpu_->moe().grouped_linear(*weights.gpu, x, batch, 1, true, false, plain);
      gpu_->moe().grouped_gate_up(*weights.gpu, x, batch, 1, scratch, gated);
      std::vector<HostTensor> found;
      found.push_back(back(plain));
      found.push_back(back(gated));
      if (of_first.empty()) {
        of_first = std::move(found);
        continue;
      }
      for (std::size_t i = 0; i < found.size(); ++i) {
        const std::int64_t width = found[i]->shape()[1];
        for (std::int64_t at = 0; at < found[i]->elements(); ++at) {
          ASSERT_EQ(found[i]->as<float>()[at], of_first[i]->as<float>()[at])
              << n << " x " << k << ", " << likely << " rows likely, result " << i << ", row "
              << at / width << ", column " << at % width;
        }
      }
    }
  }
}

TEST_P(Fp8Experts, multiply_codes_of_tokens_as_they_do_the_tokens) {
  for (const auto& [tokens, top_k, n, k] :
       {std::tuple{1, 1, 32, 16}, {7, 2, 272, 208}, {130, 4, 512, 2064}}) {
    const std::int64_t local = 6, assignments = tokens * top_k;
    const Both weights = experts(local, n, k);
    const DeviceTensor x = activation(random({tokens, k})),
                       scratch = room(DType::bf16, {assignments, n});
    const Sorted sorted = sort(choose(tokens, top_k, local), 0, local);
    std::vector<HostTensor> found;
    for (const bool of_codes : {false, true}) {
      ExpertBatch batch{sorted.gpu_offsets, sorted.gpu_source, assignments};
      const DeviceTensor plain = room(DType::f32, {assignments, n}),
                         gated = room(DType::bf16, {assignments, n / 2});
      ASSERT_TRUE(gpu_->moe().takes_codes(*weights.gpu));
      const CodedTokens coded = of_codes ? gpu_->moe().codes_of(x) : CodedTokens{x, Tensor()};
      batch.scales = coded.scales;
      gpu_->moe().grouped_linear(*weights.gpu, coded.codes, batch, top_k, true, false, plain);
      gpu_->moe().grouped_gate_up(*weights.gpu, coded.codes, batch, top_k, scratch, gated);
      found.push_back(back(plain));
      found.push_back(back(gated));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::int64_t at = 0; at < found[i]->elements(); ++at) {
        ASSERT_EQ(found[i]->as<float>()[at], found[i + 2]->as<float>()[at])
            << tokens << " tokens, " << n << " x " << k << ", result " << i << ", element " << at;
      }
    }
  }
}

TEST_P(Fp8Experts, of_few_tokens_are_added_with_their_weights) {
  struct Case {
    std::int64_t tokens, top_k, experts, first, local, hidden, inner, shared = 0;
  };
  // Up to eight tokens do without codes of x; nine have them.
  for (const Case& c : {Case{1, 8, 16, 0, 16, 2048, 768}, Case{1, 8, 128, 96, 32, 256, 96},
                        Case{8, 8, 32, 0, 32, 272, 208}, Case{5, 2, 7, 3, 4, 64, 16},
                        Case{8, 1, 1, 0, 1, 48, 352}, Case{3, 4, 64, 60, 1, 2064, 48},
                        Case{7, 3, 6, 0, 6, 4112, 704}, Case{9, 8, 32, 8, 8, 256, 64},
                        Case{200, 6, 16, 4, 8, 144, 80}, Case{1, 6, 16, 0, 16, 2048, 176, 2},
                        Case{1, 8, 16, 0, 16, 256, 1040}, Case{6, 4, 16, 0, 16, 144, 1552},
                        Case{8, 6, 16, 0, 16, 272, 208, 2}, Case{5, 3, 8, 2, 4, 256, 352, 3}}) {
    const std::string what =
        fmt::format("{} tokens x {} of {}, {} from {}, {} x {}, {} shared", c.tokens, c.top_k,
                    c.experts, c.local, c.first, c.hidden, c.inner, c.shared);
    const std::int64_t assignments = c.tokens * c.top_k, shared_inner = c.shared * c.inner;
    const Both upper = experts(c.local, 2 * c.inner, c.hidden);
    const Both down = experts(c.local, c.hidden, c.inner);
    const HostTensor x = random({c.tokens, c.hidden}), ids = choose(c.tokens, c.top_k, c.experts);
    const HostTensor weights(DType::f32, ids->shape());
    for (float& weight : weights->span<float>()) {
      weight = 0.1F + static_cast<float>(engine_() % 100) / 100.0F;
    }
    SharedMlp shared;
    std::unique_ptr<Linear> shared_gates, shared_down;
    HostTensor shared_upper_numbers, shared_down_numbers;
    if (c.shared > 0) {
      const HostTensor gates = random({2 * shared_inner, c.hidden}, 0.1F),
                       lower = random({c.hidden, shared_inner}, 0.1F);
      auto made_gates = gpu_->weights().prepare(narrow(gates), 1, WeightEncoding::fp8);
      auto made_down = gpu_->weights().prepare(narrow(lower), 1, WeightEncoding::fp8);
      ASSERT_TRUE(made_gates.ok() && made_down.ok());
      shared_gates = *std::move(made_gates);
      shared_down = *std::move(made_down);
      shared_upper_numbers = coded(gates);
      shared_down_numbers = coded(lower);
      shared = {shared_gates.get(), shared_down.get()};
      ASSERT_TRUE(gpu_->moe().adds_shared_mlp(shared, *down.gpu, c.tokens, c.top_k)) << what;
    }
    const bool has_codes_of_x = c.tokens > 8;
    const auto rounded_row = [&](const std::vector<float>& row) {
      HostTensor one(DType::f32, {1, std::ssize(row)});
      std::ranges::copy(row, one->as<float>());
      return has_codes_of_x ? coded(one) : std::move(one);
    };
    /// Adds silu(gate) * up, then down, times a weight.
    const auto add_mlp = [&](const float* from, const float* gates, const float* lower,
                             std::int64_t inner, double weight, std::vector<double>& sum) {
      std::vector<float> row(static_cast<std::size_t>(inner));
      for (std::int64_t i = 0; i < inner; ++i) {
        const double gate = product(from, gates + i * c.hidden, c.hidden).value;
        const double up = product(from, gates + (inner + i) * c.hidden, c.hidden).value;
        row[static_cast<std::size_t>(i)] = rounded(static_cast<float>(silu(gate) * up));
      }
      const HostTensor taken = rounded_row(row);
      for (std::int64_t i = 0; i < c.hidden; ++i) {
        sum[static_cast<std::size_t>(i)] +=
            weight * product(taken->as<float>(), lower + i * inner, inner).value;
      }
    };
    const Sorted sorted = sort(ids, c.first, c.local);
    const DeviceTensor gpu_ids = exact(ids), gpu_weights = exact(weights), gpu_x = activation(x);
    const DeviceTensor gate_up = room(DType::bf16, {assignments, 2 * c.inner}),
                       activated = room(DType::bf16, {assignments, c.inner}),
                       rows = room(DType::bf16, {assignments, c.hidden}),
                       of_shared =
                           room(DType::bf16, {c.tokens, std::max<std::int64_t>(shared_inner, 1)});
    const HostTensor taken_x = has_codes_of_x ? coded(x) : copy_of(x);
    for (const DType out_dtype : {DType::f32, DType::bf16}) {
      const DeviceTensor out = room(out_dtype, {c.tokens, c.hidden});
      gpu_->moe().expert_mlp(*upper.gpu, *down.gpu, gpu_x, {gpu_ids, gpu_weights, c.first},
                             sorted.gpu, {gate_up, activated, rows, of_shared}, out, shared);
      const HostTensor found = back(out);
      for (std::int64_t t = 0; t < c.tokens; t += 1 + t % 7) {
        std::vector<double> wanted(static_cast<std::size_t>(c.hidden));
        const float* const from = taken_x->as<float>() + t * c.hidden;
        for (std::int64_t choice = 0; choice < c.top_k; ++choice) {
          const std::int64_t at = t * c.top_k + choice;
          const std::int64_t expert = ids->as<std::int32_t>()[at] - c.first;
          if (expert < 0 || expert >= c.local) continue;
          add_mlp(from, upper.numbers->rows(expert, 1).as<float>(),
                  down.numbers->rows(expert, 1).as<float>(), c.inner, weights->as<float>()[at],
                  wanted);
        }
        if (c.shared > 0) {
          add_mlp(from, shared_upper_numbers->as<float>(), shared_down_numbers->as<float>(),
                  shared_inner, 1.0, wanted);
        }
        double largest = 0.0;
        for (const double value : wanted) largest = std::max(largest, std::abs(value));
        // Of x in codes, an activation that is rounded to another code is a sixteenth off.
        const double tolerance = (has_codes_of_x ? 4e-2 : 1.5e-2) * largest;
        for (std::int64_t i = 0; i < c.hidden; ++i) {
          const double value = found->as<float>()[t * c.hidden + i];
          ASSERT_LE(std::abs(value - wanted[static_cast<std::size_t>(i)]), tolerance)
              << what << ", " << to_string(out_dtype) << ", token " << t << ", column " << i
              << ": expected " << wanted[static_cast<std::size_t>(i)] << ", found " << value
              << ", the largest is " << largest;
        }
      }
    }
  }
}

TEST_P(Fp8Experts, give_few_tokens_the_same_rows_whoever_shares_the_batch) {
  constexpr std::int64_t most = 8, top_k = 8, count = 16, hidden = 272, inner = 80;
  const Both upper = experts(count, 2 * inner, hidden), down = experts(count, hidden, inner);
  const DeviceTensor x = activation(random({most, hidden}));
  const HostTensor ids = choose(most, top_k, count), weights = random({most, top_k});
  std::vector<float> of_all;
  for (std::int64_t tokens = most; tokens > 0; --tokens) {
    const std::int64_t assignments = tokens * top_k;
    const Sorted sorted = sort(copy_of(ids->rows(0, tokens)), 0, count);
    const DeviceTensor gpu_ids = exact(sorted.ids), gpu_weights = exact(weights->rows(0, tokens));
    const DeviceTensor gate_up = room(DType::bf16, {assignments, 2 * inner}),
                       activated = room(DType::bf16, {assignments, inner}),
                       rows = room(DType::bf16, {assignments, hidden}),
                       out = room(DType::f32, {tokens, hidden});
    gpu_->moe().expert_mlp(*upper.gpu, *down.gpu, x->rows(0, tokens), {gpu_ids, gpu_weights},
                           sorted.gpu, {gate_up, activated, rows}, out);
    const HostTensor found = back(out);
    const auto values = found->span<float>();
    if (of_all.empty()) of_all.assign(values.begin(), values.end());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], of_all[i]) << tokens << " tokens, element " << i;
    }
  }
}

TEST_P(Fp8Experts, are_loaded_with_the_scales_of_whole_rows) {
  constexpr std::int64_t count = 3, n = 48, k = 1184;
  std::vector<HostTensor> owners;
  HostTensor all(DType::f32, {count, n, k});
  for (std::int64_t e = 0; e < count; ++e) {
    owners.push_back(random({n, k}, 0.1F));
    std::copy_n(owners.back()->as<float>(), n * k, all->rows(e, 1).as<float>());
  }
  const HostTensor numbers = coded(all);
  std::vector<HostTensor> narrowed;
  for (const HostTensor& one : owners) narrowed.push_back(narrow(one));
  // Rows and columns of a rank, which has all, or a part of either.
  for (const auto& [rows, cols] : {std::pair{Slice{0, n}, Slice{0, k}},
                                   {Slice{16, 32}, Slice{0, k}},
                                   {Slice{0, n}, Slice{592, 592}}}) {
    std::vector<StoredMatrix> matrices;
    for (const HostTensor& one : narrowed) {
      StoredMatrix matrix{.rows = rows.count, .columns = cols.count};
      matrix.parts.push_back({.matrix = {.view = one}, .rows = rows, .cols = cols});
      matrices.push_back(std::move(matrix));
    }
    auto loaded = gpu_->weights().load_grouped(matrices, 1, WeightEncoding::fp8);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    const auto done = gpu_->weights().finish_loading(nullptr);
    ASSERT_TRUE(done.ok()) << done.error().message;
    ASSERT_EQ((*loaded)->kernel(), rounding_kernel(CodeKind::e4m3));
    // Each expert multiplies the rows of a unit matrix.
    const HostTensor x(DType::f32, {count * cols.count, cols.count});
    std::vector<std::int32_t> chosen;
    for (std::int64_t r = 0; r < count * cols.count; ++r) {
      x->as<float>()[r * cols.count + r % cols.count] = 1.0F;
      chosen.push_back(static_cast<std::int32_t>(r / cols.count));
    }
    const auto tokens = std::ssize(chosen);
    const Sorted sorted = sort(integers(chosen, {tokens, 1}), 0, count);
    const DeviceTensor out = room(DType::f32, {tokens, rows.count});
    gpu_->moe().grouped_linear(**loaded, activation(x), sorted.gpu, 1, true, true, out);
    const HostTensor found = back(out);
    for (std::int64_t r = 0; r < tokens; ++r) {
      const std::int64_t e = r / cols.count, column = cols.begin + r % cols.count;
      for (std::int64_t i = 0; i < rows.count; ++i) {
        const float wanted = numbers->as<float>()[(e * n + rows.begin + i) * k + column];
        ASSERT_NEAR(found->as<float>()[r * rows.count + i], wanted, 1e-6F + 1e-6F * wanted)
            << "expert " << e << ", row " << i << ", column " << column << " of " << cols.count;
      }
    }
  }
}

TEST_P(Fp8Experts, of_shapes_that_have_no_codes_are_numbers) {
  for (const auto& [n, k] : {std::pair{24, 64}, {32, 40}}) {
    const HostTensor weight = random({n, k}, 0.1F), narrowed = narrow(weight);
    const std::vector<Tensor> views{narrowed.view()};
    auto made = gpu_->weights().prepare_grouped(views, 1, WeightEncoding::fp8);
    auto plain = gpu_->weights().prepare_grouped(views, 1, WeightEncoding::plain);
    ASSERT_TRUE(made.ok() && plain.ok());
    EXPECT_EQ((*made)->kernel(), "numbers, not codes");
    EXPECT_EQ((*plain)->kernel(), "bf16");
    EXPECT_EQ((*made)->bytes(), static_cast<std::size_t>(2 * n * k));
  }
}

}  // namespace
}  // namespace troupe
