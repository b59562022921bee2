// Rows dispatched to experts on other GPUs and back, beside the same sums on the host.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "parallel/device/convert.hpp"
#include "tests/gpu/collectives/gpu_ranks.hpp"

namespace troupe {
namespace {

class DeviceExpertExchanges : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (gpus() < GetParam()) GTEST_SKIP() << "there are " << gpus() << " GPUs";
  }
};

/// How the rows of one exchange choose experts.
enum class Choice : std::uint8_t { evenly, one_rank, next_rank };

struct Exchange {
  std::vector<std::int64_t> rows;  ///< of each rank
  Choice choice = Choice::evenly;
};

/// A rank's input.
struct Given {
  HostTensor x, ids, weights;
};

Given given(int rank, int ranks, const DeviceExpertExchangeLayout& layout, const Exchange& exchange,
            unsigned seed) {
  std::mt19937 random(seed * 64 + static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  const std::int64_t rows = exchange.rows[static_cast<std::size_t>(rank)];
  const HostTensor wide(DType::f32, {rows, layout.width});
  for (float& x : wide->span<float>()) x = normal(random);
  Given made{HostTensor(DType::bf16, wide->shape()), HostTensor(DType::i32, {rows, layout.top_k}),
             HostTensor(DType::f32, {rows, layout.top_k})};
  convert(wide, made.x);
  for (float& weight : made.weights->span<float>()) weight = std::abs(normal(random));
  const std::int64_t local = layout.local_experts;
  const std::int64_t first = exchange.choice == Choice::evenly     ? 0
                             : exchange.choice == Choice::one_rank ? (ranks - 1) * local
                                                                   : (rank + 1) % ranks * local;
  std::vector<std::int32_t> some(
      static_cast<std::size_t>(exchange.choice == Choice::evenly ? ranks * local : local));
  std::iota(some.begin(), some.end(), static_cast<std::int32_t>(first));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::ranges::shuffle(some, random);
    std::copy_n(some.begin(), layout.top_k, made.ids->rows(row, 1).as<std::int32_t>());
  }
  return made;
}

float at(const Tensor& tensor, std::int64_t i) {
  return tensor.dtype() == DType::f32 ? tensor.as<float>()[i] : to_float(tensor.as<BFloat16>()[i]);
}
float rounded(float value) { return to_float(to_bfloat16(value)); }

/// Expert `e`'s result for a number, exactly in bf16.
float made_by(std::int32_t expert, float x) {
  return x * std::exp2(static_cast<float>(expert % 5 - 2));
}

/// The ranks' experts on the host, for the rows received by a rank: [capacity * top_k, width] bf16.
HostTensor results_of(const Tensor& rows, const Tensor& ids, const Tensor& received_counts,
                      const DeviceExpertExchangeLayout& layout, int rank) {
  HostTensor results(DType::bf16, {ids.elements(), layout.width});
  std::ranges::fill(results->span<BFloat16>(), to_bfloat16(NAN));
  for (std::int64_t r = 0; r < received_counts.elements(); ++r) {
    for (std::int64_t i = 0; i < received_counts.as<std::int32_t>()[r]; ++i) {
      for (std::int64_t c = 0; c < layout.top_k; ++c) {
        const std::int64_t place = r * layout.max_rows + i, pair = place * layout.top_k + c;
        const std::int32_t expert = ids.as<std::int32_t>()[pair];
        if (expert / layout.local_experts != rank) continue;
        for (std::int64_t n = 0; n < layout.width; ++n) {
          results->as<BFloat16>()[pair * layout.width + n] =
              to_bfloat16(made_by(expert, at(rows, place * layout.width + n)));
        }
      }
    }
  }
  return results;
}

/// Element n of a row's sum, as DeviceExpertExchange defines it.
float expected(const Given& own, const DeviceExpertExchangeLayout& layout, int ranks,
               std::int64_t row, std::int64_t n, DType out) {
  float sum = 0.0F;
  bool first_rank = true;
  for (int rank = 0; rank < ranks; ++rank) {
    float part = 0.0F;
    bool first = true;
    for (std::int64_t c = 0; c < layout.top_k; ++c) {
      const std::int32_t expert = own.ids->as<std::int32_t>()[row * layout.top_k + c];
      if (expert / layout.local_experts != rank) continue;
      const float value = made_by(expert, at(own.x, row * layout.width + n));
      const float weight = own.weights->as<float>()[row * layout.top_k + c];
      part = first ? value * weight : std::fma(value, weight, part);
      first = false;
    }
    if (first) continue;
    sum = first_rank ? rounded(part) : sum + rounded(part);
    first_rank = false;
  }
  return out == DType::bf16 ? rounded(sum) : sum;
}

/// x as codes: bytes, which here are the numbers -64 to 63, with a scale that a row has from its
/// number. given.x becomes the numbers that they are.
HostTensor as_codes(Given& given, const Tensor& scales) {
  const std::int64_t rows = given.x->shape()[0], width = given.x->shape()[1];
  HostTensor codes(DType::u8, given.x->shape());
  for (std::int64_t i = 0; i < rows * width; ++i) {
    const auto code = static_cast<std::uint8_t>((i * 37 + i / width * 11) % 128);
    codes->as<std::uint8_t>()[i] = code;
    const float scale = std::exp2(static_cast<float>(i / width % 7 - 3));
    scales.as<float>()[i / width] = scale;
    given.x->as<BFloat16>()[i] = to_bfloat16(static_cast<float>(code - 64) * scale);
  }
  return codes;
}

/// The numbers of received codes: [capacity, width] bf16.
HostTensor numbers_of(const Tensor& codes, const Tensor& scales) {
  HostTensor numbers(DType::bf16, codes.shape());
  for (std::int64_t i = 0; i < codes.elements(); ++i) {
    numbers->as<BFloat16>()[i] = to_bfloat16(static_cast<float>(codes.as<std::uint8_t>()[i] - 64) *
                                             scales.as<float>()[i / codes[1]]);
  }
  return numbers;
}

/// One rank's memory for exchanges of up to max_rows.
struct Buffers {
  DeviceTensor x, codes, scales, ids, weights, results, out;

  static Result<Buffers> create(Ops& ops, const DeviceExpertExchangeLayout& layout, int ranks,
                                DType dtype) {
    Buffers made;
    const std::int64_t rows = layout.max_rows;
    TROUPE_TRY(made.x, ops.memory().allocate(DType::bf16, {rows, layout.width}));
    TROUPE_TRY(made.codes, ops.memory().allocate(DType::u8, {rows, layout.width}));
    TROUPE_TRY(made.scales, ops.memory().allocate(DType::f32, {rows}));
    TROUPE_TRY(made.ids, ops.memory().allocate(DType::i32, {rows, layout.top_k}));
    TROUPE_TRY(made.weights, ops.memory().allocate(DType::f32, {rows, layout.top_k}));
    TROUPE_TRY(made.results,
               ops.memory().allocate(DType::bf16, {ranks * rows * layout.top_k, layout.width}));
    TROUPE_TRY(made.out, ops.memory().allocate(dtype, {rows, layout.width}));
    return made;
  }
};

Result<void> compare(const Given& own, const Tensor& out, const DeviceExpertExchangeLayout& layout,
                     int ranks) {
  for (std::int64_t i = 0; i < out.elements(); ++i) {
    const float wanted =
        expected(own, layout, ranks, i / layout.width, i % layout.width, out.dtype());
    if (at(out, i) != wanted) {
      return fail(ErrorCode::internal, "row {}, element {}: expected {}, found {}",
                  i / layout.width, i % layout.width, wanted, at(out, i));
    }
  }
  return {};
}

/// One exchange, of numbers or of codes, with the experts computed on the host.
Result<void> exchange_once(GpuRank& rank, DeviceExpertExchange& exchange, const Buffers& buffers,
                           Given own, bool of_codes) {
  const DeviceExpertExchangeLayout& layout = exchange.layout();
  Ops& ops = *rank.ops;
  const std::int64_t rows = own.x->shape()[0];
  const HostTensor scales(DType::f32, {rows});
  const HostTensor codes = of_codes ? as_codes(own, scales) : HostTensor();
  if (of_codes) {
    ops.memory().upload(codes, buffers.codes->rows(0, rows));
    ops.memory().upload(scales, buffers.scales->rows(0, rows));
  } else {
    ops.memory().upload(own.x, buffers.x->rows(0, rows));
  }
  ops.memory().upload(own.ids, buffers.ids->rows(0, rows));
  ops.memory().upload(own.weights, buffers.weights->rows(0, rows));
  TROUPE_CHECK(exchange.dispatch((of_codes ? buffers.codes : buffers.x)->rows(0, rows),
                                 of_codes ? buffers.scales->rows(0, rows) : Tensor(),
                                 buffers.ids->rows(0, rows), buffers.weights->rows(0, rows)));
  TROUPE_TRY(HostTensor came,
             rank.download(of_codes ? exchange.received_codes() : exchange.received()));
  if (of_codes) {
    TROUPE_TRY(const HostTensor came_scales, rank.download(exchange.received_scales()));
    came = numbers_of(came, came_scales);
  }
  TROUPE_TRY(const HostTensor ids, rank.download(exchange.received_ids()));
  TROUPE_TRY(const HostTensor received_counts, rank.download(exchange.received_counts()));
  const HostTensor results = results_of(came, ids, received_counts, layout, rank.host->rank());
  ops.memory().upload(results, buffers.results);
  TROUPE_CHECK(exchange.combine(buffers.results, buffers.out->rows(0, rows)));
  TROUPE_TRY(const HostTensor out, rank.download(buffers.out->rows(0, rows)));
  return compare(own, out, layout, exchange.ranks());
}

std::vector<Exchange> exchanges(int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  std::vector<Exchange> all;
  for (const Choice choice : {Choice::evenly, Choice::one_rank, Choice::next_rank}) {
    for (const std::int64_t rows : {1, 7, 130, 0, 33}) {
      all.push_back({std::vector<std::int64_t>(size, rows), choice});
    }
    std::vector<std::int64_t> uneven(size, 0);
    uneven.back() = 1;
    all.push_back({uneven, choice});
    uneven.front() = 130;
    all.push_back({uneven, choice});
  }
  return all;
}

TEST_P(DeviceExpertExchanges, bring_every_row_to_its_experts_and_their_sum_back) {
  for (const auto& [width, top_k, dtype] :
       {std::tuple{2048, 8, DType::f32}, {200, 3, DType::bf16}, {64, 1, DType::f32}}) {
    run_gpu_ranks(GetParam(), [&](GpuRank& rank) -> Result<void> {
      const int ranks = GetParam();
      const DeviceExpertExchangeLayout layout{
          .max_rows = 130, .width = width, .top_k = top_k, .local_experts = 8};
      TROUPE_TRY(const auto exchange, rank.device->open_expert_exchange(layout));
      if (exchange == nullptr) return fail(ErrorCode::unsupported, "no memory is shared");
      TROUPE_TRY(const Buffers buffers, Buffers::create(*rank.ops, layout, ranks, dtype));
      unsigned seed = 0;
      for (const Exchange& each : exchanges(ranks)) {
        for (const bool of_codes : {false, true}) {
          if (of_codes && width % 16 != 0) continue;
          const auto done =
              exchange_once(rank, *exchange, buffers,
                            given(rank.host->rank(), ranks, layout, each, ++seed), of_codes);
          if (!done.ok()) {
            return fail(done.error().code, "exchange {} of width {}{}: {}", seed, width,
                        of_codes ? ", in codes" : "", done.error().message);
          }
        }
      }
      return rank.device->barrier();
    });
  }
}

// Each rank replays its captured exchange with its own number of rows; results are of the last
// exchange's kind: experts that leave a row as it is.
TEST_P(DeviceExpertExchanges, are_recorded_by_each_rank_with_its_own_rows) {
  run_gpu_ranks(GetParam(), [&](GpuRank& rank) -> Result<void> {
    const int ranks = GetParam(), own_rank = rank.host->rank();
    const DeviceExpertExchangeLayout layout{
        .max_rows = 40, .width = 256, .top_k = 1, .local_experts = 4};
    TROUPE_TRY(const auto exchange, rank.device->open_expert_exchange(layout));
    if (exchange == nullptr) return fail(ErrorCode::unsupported, "no memory is shared");
    TROUPE_TRY(const Buffers buffers, Buffers::create(*rank.ops, layout, ranks, DType::f32));
    Exchange each;
    for (int r = 0; r < ranks; ++r) each.rows.push_back(r == 0 ? 0 : 13 * r);
    const std::int64_t rows = each.rows[static_cast<std::size_t>(own_rank)];
    // With one choice, a received row is its own result.
    const auto go = [&]() -> Result<void> {
      TROUPE_CHECK(exchange->dispatch(buffers.x->rows(0, rows), {}, buffers.ids->rows(0, rows),
                                      buffers.weights->rows(0, rows)));
      return exchange->combine(exchange->received(), buffers.out->rows(0, rows));
    };
    TROUPE_TRY(const auto graph, rank.ops->stream().capture([&]() -> Result<void> {
      for (int i = 0; i < 3; ++i) TROUPE_CHECK(go());
      return {};
    }));
    for (unsigned seed = 1; seed < 20; ++seed) {
      const Given own = given(own_rank, ranks, layout, each, seed);
      rank.ops->memory().upload(own.x, buffers.x->rows(0, rows));
      rank.ops->memory().upload(own.ids, buffers.ids->rows(0, rows));
      rank.ops->memory().upload(own.weights, buffers.weights->rows(0, rows));
      rank.ops->stream().replay(*graph);
      TROUPE_TRY(const HostTensor out, rank.download(buffers.out->rows(0, rows)));
      for (std::int64_t i = 0; i < out->elements(); ++i) {
        const float wanted = rounded(at(own.x, i) * own.weights->as<float>()[i / layout.width]);
        if (out->as<float>()[i] != wanted) {
          return fail(ErrorCode::internal, "seed {}, element {}: expected {}, found {}", seed, i,
                      wanted, out->as<float>()[i]);
        }
      }
    }
    return rank.device->barrier();
  });
}

TEST_P(DeviceExpertExchanges, end_when_a_rank_aborts_instead_of_coming) {
  run_gpu_ranks(GetParam(), [&](GpuRank& rank) -> Result<void> {
    const DeviceExpertExchangeLayout layout{
        .max_rows = 8, .width = 64, .top_k = 1, .local_experts = 2};
    TROUPE_TRY(const auto exchange, rank.device->open_expert_exchange(layout));
    if (exchange == nullptr) return fail(ErrorCode::unsupported, "no memory is shared");
    TROUPE_TRY(const Buffers buffers, Buffers::create(*rank.ops, layout, GetParam(), DType::f32));
    if (rank.host->rank() == 0) {
      rank.device->abort();
      return {};
    }
    const auto enqueued = exchange->dispatch(buffers.x->rows(0, 1), {}, buffers.ids->rows(0, 1),
                                             buffers.weights->rows(0, 1));
    const auto waited = enqueued.ok() ? rank.ops->stream().synchronize() : enqueued;
    if (waited.ok()) return fail(ErrorCode::internal, "an exchange without rank 0 ended well");
    return {};
  });
}

TEST_P(DeviceExpertExchanges, take_codes_if_the_devices_of_all_ranks_do) {
  run_gpu_ranks(GetParam(), [&](GpuRank& rank) -> Result<void> {
    constexpr int nobody = -1;
    for (const int refusing : {nobody, 0, GetParam() - 1}) {
      TROUPE_TRY(const auto exchange,
                 rank.device->open_expert_exchange({.max_rows = 8,
                                                    .width = 64,
                                                    .top_k = 1,
                                                    .local_experts = 2,
                                                    .takes_codes = rank.host->rank() != refusing}));
      if (exchange == nullptr) return fail(ErrorCode::unsupported, "no memory is shared");
      if (exchange->takes_codes() != (refusing == nobody)) {
        return fail(ErrorCode::internal, "rank {} refuses: {}", refusing, exchange->takes_codes());
      }
      TROUPE_CHECK(rank.host->barrier());  // the others' memory is freed with theirs
    }
    return {};
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceExpertExchanges, testing::Values(2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "_GPUs"; });

}  // namespace
}  // namespace troupe
