#include <bit>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <random>

#include "parallel/collectives/peer/peer_sums.hpp"
#include "parallel/collectives/tree_sum.hpp"
#include "parallel/device/convert.hpp"
#include "tests/gpu/collectives/gpu_ranks.hpp"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

struct GroupCase {
  int ranks;
  bool on_one_node;  ///< false: as over several nodes, by NCCL alone
};

class GpuCollectives : public testing::TestWithParam<GroupCase> {
 protected:
  void SetUp() override {
    if (gpus() < GetParam().ranks) GTEST_SKIP() << "there are " << gpus() << " GPUs";
  }
  static void run(const std::function<Result<void>(GpuRank&)>& body) {
    run_gpu_ranks(GetParam().ranks, body, {"test", GetParam().on_one_node});
  }
};

/// Rank r's values in a test, of any float dtype.
HostTensor values_of(int rank, DType dtype, Shape shape, unsigned seed) {
  const HostTensor floats(DType::f32, shape);
  std::mt19937 random(seed * 64 + static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  for (float& x : floats->span<float>()) x = normal(random);
  HostTensor values(dtype, shape);
  convert(floats, values);
  return values;
}

std::vector<float> floats_of(const Tensor& values) {
  const HostTensor floats(DType::f32, values.shape());
  convert(values, floats);
  const auto span = floats->span<float>();
  return {span.begin(), span.end()};
}

/// The sum over ranks in tree order, rounded to `dtype`.
std::vector<float> expected_sum(int ranks, DType part, DType sum, Shape shape, unsigned seed) {
  std::vector<std::vector<float>> parts;
  std::vector<const float*> terms;
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back(floats_of(values_of(rank, part, shape, seed)));
  }
  for (const auto& values : parts) terms.push_back(values.data());
  const HostTensor added(DType::f32, shape);
  tree_sum(terms, added->as<float>(), static_cast<std::size_t>(shape.elements()));
  const HostTensor rounded(sum, shape);
  convert(added, rounded);
  return floats_of(rounded);
}

Result<void> expect_same(std::span<const float> found, std::span<const float> expected,
                         const std::string& what) {
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(found[i]) == std::bit_cast<std::uint32_t>(expected[i])) {
      continue;
    }
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return {};
  return fail(ErrorCode::internal, "{}: {} of {} differ, the first at {}: found {}, expected {}",
              what, wrong, expected.size(), first, found[first], expected[first]);
}

struct SumCase {
  DType part;
  DType sum;
};
constexpr SumCase sum_cases[] = {
    {DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}};

/// One GPU adds the terms of groups that no machine here has.
Result<void> expect_sum_of_terms(const GpuRank& gpu, int ranks, const SumCase& way, Shape shape) {
  std::vector<DeviceTensor> parts;
  std::vector<const void*> terms;
  for (int rank = 0; rank < ranks; ++rank) {
    TROUPE_TRY(DeviceTensor part, gpu.upload(values_of(rank, way.part, shape, 5)));
    terms.push_back(part->data());
    parts.push_back(std::move(part));
  }
  TROUPE_TRY(const DeviceTensor sum, gpu.ops->memory().allocate(way.sum, shape));
  const Shape rooms{max_peer_ranks, shape.elements()};
  TROUPE_TRY(const DeviceTensor room, gpu.ops->memory().allocate(DType::f32, rooms));
  if (launch_sum_of_terms(terms, way.part, sum, room->as<float>(), nullptr) != cudaSuccess ||
      cudaDeviceSynchronize() != cudaSuccess) {
    return fail(ErrorCode::internal, "the sum of {} terms cannot run", ranks);
  }
  TROUPE_TRY(const HostTensor found, gpu.download(sum));
  return expect_same(floats_of(found), expected_sum(ranks, way.part, way.sum, shape, 5),
                     fmt::format("{} terms of {}", ranks, shape.elements()));
}

TEST(SumOfTerms, of_more_ranks_than_share_memory_has_the_bits_of_the_tree) {
  if (gpus() < 1) GTEST_SKIP() << "there is no GPU";
  GpuRank gpu;
  auto made = make_cuda_ops({.device = 0, .dtype = DType::f32});
  ASSERT_TRUE(made.ok()) << made.error().message;
  gpu.ops = *std::move(made);
  for (const int ranks : {1, 8, 9, 12, 16, 17, 33, 63, max_summed_ranks}) {
    for (const std::int64_t count : {7, 4096}) {
      for (const SumCase& way : sum_cases) {
        const auto same = expect_sum_of_terms(gpu, ranks, way, Shape{count});
        EXPECT_TRUE(same.ok()) << same.error().message;
      }
    }
  }
}

// Sizes on both sides of every algorithm's limits, and uneven ones.
TEST_P(GpuCollectives, sums_have_the_bits_of_the_tree_at_every_size) {
  run([](GpuRank& rank) -> Result<void> {
    unsigned seed = 0;
    for (const std::int64_t count :
         {8, 17, 4096, 32768, 65536, 65544, 1 << 20, 3000000, 20000003}) {
      for (const SumCase& way : sum_cases) {
        const Shape shape{count};
        ++seed;
        TROUPE_TRY(const DeviceTensor part,
                   rank.upload(values_of(rank.device->rank(), way.part, shape, seed)));
        TROUPE_TRY(const DeviceTensor sum, rank.ops->memory().allocate(way.sum, shape));
        TROUPE_CHECK(rank.device->all_reduce_tree(part, sum));
        TROUPE_TRY(const HostTensor found, rank.download(sum));
        const std::string what = fmt::format("rank {}: {} of {} to {}", rank.device->rank(), count,
                                             to_string(way.part), to_string(way.sum));
        TROUPE_CHECK(expect_same(floats_of(found),
                                 expected_sum(rank.device->size(), way.part, way.sum, shape, seed),
                                 what));
      }
    }
    return {};
  });
}

TEST_P(GpuCollectives, sums_in_place_one_after_another_without_a_wait_between_them) {
  run([](GpuRank& rank) -> Result<void> {
    const Shape small{4096}, large{200000};
    TROUPE_TRY(const DeviceTensor a,
               rank.upload(values_of(rank.device->rank(), DType::bf16, small, 1)));
    TROUPE_TRY(const DeviceTensor b,
               rank.upload(values_of(rank.device->rank(), DType::bf16, large, 2)));
    TROUPE_TRY(const DeviceTensor sum_a, rank.ops->memory().allocate(DType::f32, small));
    TROUPE_TRY(const DeviceTensor sum_b, rank.ops->memory().allocate(DType::f32, large));
    for (int round = 0; round < 2000; ++round) {
      TROUPE_CHECK(rank.device->all_reduce_tree(a, sum_a));
      if (round % 3 == 0) TROUPE_CHECK(rank.device->all_reduce_tree(b, sum_b));
    }
    TROUPE_CHECK(rank.device->all_reduce_tree(b, b));
    TROUPE_TRY(const HostTensor found_a, rank.download(sum_a));
    TROUPE_TRY(const HostTensor found_b, rank.download(sum_b));
    TROUPE_TRY(const HostTensor found_c, rank.download(b));
    const int ranks = rank.device->size();
    TROUPE_CHECK(expect_same(floats_of(found_a),
                             expected_sum(ranks, DType::bf16, DType::f32, small, 1), "small"));
    TROUPE_CHECK(expect_same(floats_of(found_b),
                             expected_sum(ranks, DType::bf16, DType::f32, large, 2), "large"));
    return expect_same(floats_of(found_c), expected_sum(ranks, DType::bf16, DType::bf16, large, 2),
                       "in place");
  });
}

TEST_P(GpuCollectives, recorded_sums_and_gathers_are_replayed) {
  run([](GpuRank& rank) -> Result<void> {
    const int ranks = rank.device->size();
    const Shape shape{6000};
    const Shape all_shape{ranks, 6000};
    const std::vector<std::int64_t> one_each(static_cast<std::size_t>(ranks), 1);
    TROUPE_TRY(const DeviceTensor part,
               rank.upload(values_of(rank.device->rank(), DType::f32, shape, 1)));
    TROUPE_TRY(const DeviceTensor sum, rank.ops->memory().allocate(DType::f32, shape));
    TROUPE_TRY(const DeviceTensor all, rank.ops->memory().allocate(DType::f32, all_shape));
    const auto enqueue = [&]() -> Result<void> {
      TROUPE_CHECK(rank.device->all_reduce_tree(part, sum));
      return rank.device->all_gather(sum->reshaped({1, 6000}), all, one_each);
    };
    TROUPE_CHECK(enqueue());
    TROUPE_CHECK(rank.ops->stream().synchronize());
    {
      TROUPE_TRY(const auto graph, rank.ops->stream().capture(enqueue));
      for (int round = 0; round < 100; ++round) rank.ops->stream().replay(*graph);
      TROUPE_CHECK(rank.ops->stream().synchronize());
    }
    // New values, and a sum outside of the graph in between.
    rank.ops->memory().upload(values_of(rank.device->rank(), DType::f32, shape, 2), part);
    TROUPE_CHECK(rank.ops->stream().synchronize());
    TROUPE_TRY(const auto again, rank.ops->stream().capture(enqueue));
    TROUPE_CHECK(rank.device->all_reduce_tree(part, sum));
    for (int round = 0; round < 3; ++round) rank.ops->stream().replay(*again);
    TROUPE_TRY(const HostTensor found, rank.download(all));
    const auto expected = expected_sum(ranks, DType::f32, DType::f32, shape, 2);
    for (int r = 0; r < ranks; ++r) {
      TROUPE_CHECK(expect_same(floats_of(found->rows(r, 1)), expected, fmt::format("row {}", r)));
    }
    return {};
  });
}

TEST_P(GpuCollectives, uneven_rows_are_gathered_scattered_and_exchanged) {
  run([](GpuRank& rank) -> Result<void> {
    const int ranks = rank.device->size();
    const int own = rank.device->rank();
    constexpr std::int64_t width = 40;
    // Rank 0 has none, rank r has 3r.
    std::vector<std::int64_t> rows, begins;
    std::int64_t total = 0;
    for (int r = 0; r < ranks; ++r) {
      begins.push_back(total);
      rows.push_back(3 * r);
      total += 3 * r;
    }
    const std::int64_t own_rows = rows[static_cast<std::size_t>(own)];
    const auto row_value = [](int r, std::int64_t row, std::int64_t column) {
      return static_cast<float>(1000 * r + 10 * row) + static_cast<float>(column) / 64.0F;
    };
    const HostTensor part(DType::f32, {own_rows, width});
    for (std::int64_t i = 0; i < own_rows * width; ++i) {
      part->as<float>()[i] = row_value(own, i / width, i % width);
    }
    std::vector<float> expected;
    for (int r = 0; r < ranks; ++r) {
      for (std::int64_t i = 0; i < rows[static_cast<std::size_t>(r)] * width; ++i) {
        expected.push_back(row_value(r, i / width, i % width));
      }
    }
    TROUPE_TRY(const DeviceTensor device_part, rank.upload(part));
    TROUPE_TRY(const DeviceTensor all, rank.ops->memory().allocate(DType::f32, {total, width}));
    TROUPE_CHECK(rank.device->all_gather(device_part, all, rows));
    TROUPE_TRY(const HostTensor gathered, rank.download(all));
    TROUPE_CHECK(expect_same(floats_of(gathered), expected, "gathered"));

    const Shape whole{total, width};
    TROUPE_TRY(const DeviceTensor partial, rank.upload(values_of(own, DType::bf16, whole, 3)));
    TROUPE_TRY(const DeviceTensor sum, rank.ops->memory().allocate(DType::f32, {own_rows, width}));
    TROUPE_CHECK(rank.device->reduce_scatter_tree(partial, sum, rows));
    TROUPE_TRY(const HostTensor scattered, rank.download(sum));
    const auto sums = expected_sum(ranks, DType::bf16, DType::f32, whole, 3);
    TROUPE_CHECK(
        expect_same(floats_of(scattered),
                    std::span(sums).subspan(
                        static_cast<std::size_t>(begins[static_cast<std::size_t>(own)] * width),
                        static_cast<std::size_t>(own_rows * width)),
                    "scattered"));

    // Rank s sends d rows to rank d, each of value 100 s + d.
    std::vector<std::int64_t> send_rows, receive_rows;
    std::vector<float> sent, due;
    for (int r = 0; r < ranks; ++r) {
      send_rows.push_back(r);
      receive_rows.push_back(own);
      sent.insert(sent.end(), static_cast<std::size_t>(r * width),
                  static_cast<float>(100 * own + r));
      due.insert(due.end(), static_cast<std::size_t>(own * width),
                 static_cast<float>(100 * r + own));
    }
    const auto row_count = static_cast<std::int64_t>(sent.size()) / width;
    TROUPE_TRY(const DeviceTensor send,
               rank.upload(Tensor(sent.data(), DType::f32, {row_count, width})));
    TROUPE_TRY(const DeviceTensor receive,
               rank.ops->memory().allocate(DType::f32, {own * ranks, width}));
    TROUPE_CHECK(rank.device->all_to_all(send, send_rows, receive, receive_rows));
    TROUPE_TRY(const HostTensor exchanged, rank.download(receive));
    return expect_same(floats_of(exchanged), due, "exchanged");
  });
}

TEST_P(GpuCollectives, messages_and_broadcasts_arrive) {
  run([](GpuRank& rank) -> Result<void> {
    const int own = rank.device->rank();
    const int last = rank.device->size() - 1;
    const Shape shape{300000};
    TROUPE_TRY(const DeviceTensor tensor, rank.upload(values_of(own, DType::f32, shape, 4)));
    // From rank to rank, then from the last to all.
    if (own > 0) TROUPE_CHECK(rank.device->receive(tensor, own - 1));
    if (own < last) TROUPE_CHECK(rank.device->send(tensor, own + 1));
    TROUPE_TRY(const HostTensor passed, rank.download(tensor));
    const auto first = floats_of(values_of(0, DType::f32, shape, 4));
    TROUPE_CHECK(expect_same(floats_of(passed), first, "passed on"));
    if (own == last) rank.ops->memory().upload(values_of(9, DType::f32, shape, 4), tensor);
    TROUPE_CHECK(rank.device->broadcast(tensor, last));
    TROUPE_TRY(const HostTensor told, rank.download(tensor));
    return expect_same(floats_of(told), floats_of(values_of(9, DType::f32, shape, 4)), "broadcast");
  });
}

/// Checks rank 0's error when it waits for a call that rank 1 does not make.
void expect_end(bool by_nccl, bool by_abort, ErrorCode code) {
  run_gpu_ranks(2, [&](GpuRank& rank) -> Result<void> {
    TROUPE_TRY(const DeviceTensor part, rank.ops->memory().allocate(DType::f32, {1024}));
    TROUPE_CHECK(rank.host->barrier());
    if (rank.device->rank() == 1) {
      if (by_abort) {
        rank.device->abort();
        return {};
      }
      // Rank 0's abort arrives through the host's group, after its timeout.
      const auto limit = Clock::now() + std::chrono::seconds(20);
      while (!rank.device->aborted() && Clock::now() < limit) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return {};
    }
    if (!by_abort) rank.device->set_timeout(std::chrono::milliseconds(300));
    const auto begin = Clock::now();
    Result<void> ended =
        by_nccl ? rank.device->receive(part, 1) : rank.device->all_reduce_tree(part);
    if (ended.ok()) ended = rank.ops->stream().synchronize();
    const auto took = Clock::now() - begin;
    if (ended.ok()) return fail(ErrorCode::internal, "the call ended well");
    if (ended.error().code != code) return ended;
    if (took > std::chrono::seconds(2)) {
      return fail(ErrorCode::internal, "it took {} ms",
                  std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
    }
    std::cout << ended.error().message << '\n';
    const Result<void> later = rank.device->all_reduce_tree(part);
    if (later.ok() || later.error().code != ErrorCode::cancelled) {
      return fail(ErrorCode::internal, "a later call is not cancelled");
    }
    return {};
  });
}

TEST(GpuCollectivesEnd, by_an_abort_of_another_rank) {
  if (gpus() < 2) GTEST_SKIP() << "there are " << gpus() << " GPUs";
  for (const bool by_nccl : {false, true}) expect_end(by_nccl, true, ErrorCode::cancelled);
}

TEST(GpuCollectivesEnd, by_the_timeout_where_a_rank_never_comes) {
  if (gpus() < 2) GTEST_SKIP() << "there are " << gpus() << " GPUs";
  for (const bool by_nccl : {false, true}) expect_end(by_nccl, false, ErrorCode::timed_out);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuCollectives,
                         testing::Values(GroupCase{2, true}, GroupCase{2, false},
                                         GroupCase{3, true}, GroupCase{3, false},
                                         GroupCase{4, true}, GroupCase{4, false}),
                         [](const auto& info) {
                           return fmt::format("{}{}", info.param.ranks,
                                              info.param.on_one_node ? "" : "_by_nccl_alone");
                         });

}  // namespace
}  // namespace troupe
