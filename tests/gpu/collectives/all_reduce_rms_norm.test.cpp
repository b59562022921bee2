#include <cstdint>
#include <cstring>
#include <latch>
#include <limits>
#include <random>

#include "parallel/device/convert.hpp"
#include "parallel/sharding/sharding.hpp"
#include "tests/gpu/collectives/gpu_ranks.hpp"

namespace troupe {
namespace {

class GpuSums : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (gpus() < GetParam()) GTEST_SKIP() << "there are " << gpus() << " GPUs";
  }
};

HostTensor random_values(DType dtype, Shape shape, unsigned seed) {
  const HostTensor floats(DType::f32, shape);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& x : floats->span<float>()) x = normal(random);
  HostTensor values(dtype, shape);
  convert(floats, values);
  return values;
}

Result<void> expect_same_bytes(const Tensor& found, const Tensor& expected,
                               const std::string& what) {
  const auto* a = static_cast<const std::uint8_t*>(found.data());
  const auto* b = static_cast<const std::uint8_t*>(expected.data());
  for (std::size_t i = 0; i < expected.bytes(); ++i) {
    if (a[i] == b[i]) continue;
    return fail(ErrorCode::internal, "{}: byte {} of {} is {}, expected {}", what, i,
                expected.bytes(), a[i], b[i]);
  }
  return {};
}

struct Way {
  std::int64_t rows, width;
  bool divided, begins;
};

/// Compares with a sum, an addition and a norm one by one.
Result<void> expect_all_reduce_rms_norm(GpuRank& rank, const Way& way, unsigned seed) {
  const int own = rank.device->rank();
  const std::string what = fmt::format("rank {}: {} rows of {}, divided {}, begins {}", own,
                                       way.rows, way.width, way.divided, way.begins);
  const Shape shape{way.rows, way.width};
  const auto rank_seed = 100 * seed + static_cast<unsigned>(own);
  TROUPE_TRY(const DeviceTensor partial, rank.upload(random_values(DType::bf16, shape, rank_seed)));
  const HostTensor before = random_values(DType::bf16, shape, 100 * seed + 77);
  TROUPE_TRY(const DeviceTensor weight,
             rank.upload(random_values(DType::f32, {way.width}, 100 * seed + 78)));
  const Slice rows =
      way.divided ? ceil_slice(way.rows, {own, rank.device->size()}) : Slice{0, way.rows};
  TROUPE_TRY(const DeviceTensor residual, rank.upload(before->rows(rows.begin, rows.count)));
  TROUPE_TRY(const DeviceTensor normed, rank.ops->memory().allocate(DType::bf16, shape));
  const AllReduceRmsNorm sum{.partial = partial,
                             .residual = residual,
                             .weight = weight,
                             .eps = 1e-6F,
                             .normed = normed,
                             .begins = way.begins,
                             .divided = way.divided};
  if (!rank.device->can_all_reduce_rms_norm(DType::bf16, way.width)) {
    return fail(ErrorCode::internal, "{}: refused", what);
  }
  TROUPE_CHECK(rank.device->all_reduce_rms_norm(sum));

  TROUPE_TRY(const DeviceTensor added, rank.ops->memory().allocate(DType::bf16, shape));
  TROUPE_TRY(const DeviceTensor whole, rank.upload(before));
  TROUPE_TRY(const DeviceTensor norms, rank.ops->memory().allocate(DType::bf16, shape));
  TROUPE_CHECK(rank.device->all_reduce_tree(partial, added));
  if (way.begins) {
    rank.ops->dense().rms_norm(added, weight, 1e-6F, norms);
  } else {
    rank.ops->dense().add_rms_norm(whole, added, weight, 1e-6F, norms);
  }
  TROUPE_TRY(const HostTensor found, rank.download(normed));
  TROUPE_TRY(const HostTensor expected, rank.download(norms));
  TROUPE_CHECK(expect_same_bytes(found, expected, what));
  if (rows.count == 0) return {};
  TROUPE_TRY(const HostTensor stream, rank.download(residual));
  TROUPE_TRY(const HostTensor sums, rank.download(way.begins ? added : whole));
  return expect_same_bytes(stream, sums->rows(rows.begin, rows.count), what + ", residual");
}

TEST_P(GpuSums, and_norms_in_one_go_have_the_bits_of_one_after_the_other) {
  run_gpu_ranks(GetParam(), [](GpuRank& rank) -> Result<void> {
    unsigned seed = 0;
    for (const std::int64_t width : {4096, 1000, 2048, 8192}) {
      for (const std::int64_t rows : {1, 2, 3, 64, 65, 257, 3000}) {
        for (const bool divided : {false, true}) {
          for (const bool begins : {false, true}) {
            if (begins && rows > 65) continue;
            TROUPE_CHECK(expect_all_reduce_rms_norm(rank, {rows, width, divided, begins}, ++seed));
          }
        }
      }
    }
    return {};
  });
}

/// Compares overlapped sums, of the rows of two passes in turn, with all_reduce_rms_norm.
Result<void> expect_overlapped_all_reduce(GpuRank& rank, OverlappedAllReduce& side,
                                          std::int64_t rows, unsigned seed) {
  constexpr int passes = 2, rounds = 41;
  const int own = rank.device->rank(), ranks = rank.device->size();
  const std::int64_t width = side.normed()[1];
  const Shape shape{rows, width};
  TROUPE_TRY(const DeviceTensor weight, rank.upload(random_values(DType::f32, {width}, seed)));
  const HostTensor numbers(DType::i32, {rows});
  for (std::int64_t i = 0; i < rows; ++i) {
    numbers->as<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  }
  TROUPE_TRY(const DeviceTensor order, rank.upload(numbers));
  std::vector<DeviceTensor> given;
  std::vector<HostTensor> norms, sums;
  TROUPE_TRY(const DeviceTensor normed, rank.ops->memory().allocate(DType::bf16, shape));
  TROUPE_TRY(const DeviceTensor stream, rank.ops->memory().allocate(DType::bf16, shape));
  for (unsigned pass = 0; pass < passes; ++pass) {
    TROUPE_TRY(DeviceTensor partial,
               rank.upload(random_values(DType::bf16, shape,
                                         seed + 10 * pass + 100 * static_cast<unsigned>(own))));
    TROUPE_CHECK(rank.device->all_reduce_rms_norm({.partial = partial,
                                                   .residual = stream,
                                                   .weight = weight,
                                                   .eps = 1e-6F,
                                                   .normed = normed,
                                                   .begins = pass == 0}));
    given.push_back(std::move(partial));
    TROUPE_TRY(HostTensor norm, rank.download(normed));
    norms.push_back(std::move(norm));
    TROUPE_TRY(HostTensor sum, rank.download(stream));
    sums.push_back(std::move(sum));
  }
  TROUPE_TRY(const DeviceTensor partial, rank.ops->memory().allocate(DType::bf16, shape));
  TROUPE_TRY(const DeviceTensor residual, rank.ops->memory().allocate(DType::bf16, shape));
  const Tensor found = side.normed().rows(0, rows);
  for (int round = 0; round < rounds; ++round) {
    const auto pass = static_cast<std::size_t>(round % passes);
    for (int part = 0; part < OverlappedAllReduce::parts; ++part) {
      const Slice of = OverlappedAllReduce::part_of(rows, part, ranks);
      const Tensor begun = partial->rows(of.begin, of.count);
      rank.ops->dense().gather_rows(given[pass], order->rows(of.begin, of.count), begun);
      TROUPE_CHECK(side.begin(part, begun));
      if (round % 5 == 3) TROUPE_CHECK(side.begin(part, begun));
    }
    for (int part = 0; part < OverlappedAllReduce::parts; ++part) {
      const Slice of = OverlappedAllReduce::part_of(rows, part, ranks);
      const Slice share = ceil_slice(of.count, {own, ranks});
      TROUPE_CHECK(side.norm(part, {.partial = partial->rows(of.begin, of.count),
                                    .residual = residual->rows(of.begin / ranks, share.count),
                                    .weight = weight,
                                    .eps = 1e-6F,
                                    .normed = found.rows(of.begin, of.count),
                                    .begins = pass == 0,
                                    .divided = true}));
    }
    for (int part = 0; part < OverlappedAllReduce::parts; ++part) TROUPE_CHECK(side.await(part));
    rank.ops->dense().gather_rows(found, order, normed);
    if (round + passes < rounds) continue;
    const std::string what = fmt::format("rank {}: {} rows, round {}", own, rows, round);
    TROUPE_TRY(const HostTensor last, rank.download(normed));
    TROUPE_CHECK(expect_same_bytes(last, norms[pass], what));
    TROUPE_TRY(const HostTensor kept, rank.download(residual));
    for (int part = 0; part < OverlappedAllReduce::parts; ++part) {
      const Slice of = OverlappedAllReduce::part_of(rows, part, ranks);
      const Slice share = ceil_slice(of.count, {own, ranks});
      if (share.count == 0) continue;
      TROUPE_CHECK(expect_same_bytes(kept->rows(of.begin / ranks, share.count),
                                     sums[pass]->rows(of.begin + share.begin, share.count),
                                     fmt::format("{}, residual of part {}", what, part)));
    }
  }
  return {};
}

TEST_P(GpuSums, beside_other_work_have_the_same_bits) {
  run_gpu_ranks(GetParam(), [](GpuRank& rank) -> Result<void> {
    for (const std::int64_t width : {1000, 4096}) {
      TROUPE_TRY(const auto side,
                 rank.device->open_overlapped_all_reduce(DType::bf16, 8192, width));
      if (side == nullptr) return fail(ErrorCode::internal, "there are none");
      for (const std::int64_t rows : {1, 9, 4096, 8191}) {
        TROUPE_CHECK(
            expect_overlapped_all_reduce(rank, *side, rows, static_cast<unsigned>(rows + width)));
      }
      TROUPE_CHECK(rank.host->barrier());  // the others' memory is freed with theirs
    }
    return {};
  });
}

// An unwritten word is a NaN: a NaN that is sent must stay a NaN.
TEST_P(GpuSums, of_numbers_that_are_none_are_none_and_end) {
  run_gpu_ranks(GetParam(), [](GpuRank& rank) -> Result<void> {
    for (const std::int64_t count : {64, 3000000}) {
      for (const DType dtype : {DType::bf16, DType::f32}) {
        const HostTensor part(dtype, {count});
        std::memset(part->data(), 0xFF, part->bytes());
        TROUPE_TRY(const DeviceTensor partial, rank.upload(part));
        TROUPE_CHECK(rank.device->all_reduce_tree(partial));
        TROUPE_TRY(const HostTensor found, rank.download(partial));
        const HostTensor floats(DType::f32, {count});
        convert(found, floats);
        for (const float x : floats->span<float>()) {
          if (x == x)
            return fail(ErrorCode::internal, "{} of {}: found {}", count, to_string(dtype), x);
        }
      }
    }
    return {};
  });
}

TEST_P(GpuSums, of_all_kinds_follow_each_other_in_recordings) {
  run_gpu_ranks(GetParam(), [](GpuRank& rank) -> Result<void> {
    const int ranks = rank.device->size(), own = rank.device->rank();
    const Shape shape{257, 1024};
    TROUPE_TRY(const DeviceTensor partial, rank.upload(random_values(DType::bf16, shape, own)));
    TROUPE_TRY(const DeviceTensor residual, rank.ops->memory().allocate(DType::bf16, shape));
    TROUPE_TRY(const DeviceTensor weight, rank.upload(random_values(DType::f32, {1024}, 50)));
    TROUPE_TRY(const DeviceTensor normed, rank.ops->memory().allocate(DType::bf16, shape));
    TROUPE_TRY(const DeviceTensor ids, rank.ops->memory().allocate(DType::i32, {ranks}));
    TROUPE_TRY(const DeviceTensor small, rank.upload(random_values(DType::f32, {1, 64}, 60 + own)));
    TROUPE_TRY(const DeviceTensor row, rank.ops->memory().allocate(DType::f32, {1, 64 * ranks}));
    const std::vector<std::int64_t> one_each(static_cast<std::size_t>(ranks), 1);
    const auto enqueue = [&]() -> Result<void> {
      for (const bool divided : {false, true, false}) {
        TROUPE_CHECK(rank.device->all_reduce_rms_norm({.partial = partial,
                                                       .residual = residual,
                                                       .weight = weight,
                                                       .eps = 1e-6F,
                                                       .normed = normed,
                                                       .begins = true,
                                                       .divided = divided}));
        // One row: only the first rank gets anything.
        TROUPE_CHECK(rank.device->columns_to_rows(
            small, own == 0 ? row.view() : row->reshaped({1, 64 * ranks}).rows(0, 0), row));
      }
      return rank.device->all_gather(ids->rows(own, 1), ids, one_each);
    };
    TROUPE_CHECK(enqueue());
    TROUPE_TRY(const HostTensor first, rank.download(normed));
    const HostTensor own_id(DType::i32, {1});
    own_id->as<std::int32_t>()[0] = own - 1;
    rank.ops->memory().upload(own_id, ids->rows(own, 1));
    TROUPE_CHECK(rank.ops->stream().synchronize());
    TROUPE_TRY(const auto graph, rank.ops->stream().capture(enqueue));
    for (int round = 0; round < 500; ++round) rank.ops->stream().replay(*graph);
    TROUPE_TRY(const HostTensor last, rank.download(normed));
    TROUPE_CHECK(expect_same_bytes(last, first, "after 500 rounds"));
    TROUPE_TRY(const HostTensor gathered, rank.download(ids));
    for (int r = 0; r < ranks; ++r) {
      if (gathered->as<std::int32_t>()[r] == r - 1) continue;
      return fail(ErrorCode::internal, "id {} is {}", r, gathered->as<std::int32_t>()[r]);
    }
    if (own != 0) return {};
    TROUPE_TRY(const HostTensor found, rank.download(row));
    for (int r = 0; r < ranks; ++r) {
      const Tensor part(found->as<float>() + 64 * r, DType::f32, {64});
      TROUPE_CHECK(expect_same_bytes(part, random_values(DType::f32, {1, 64}, 60 + r),
                                     fmt::format("columns of rank {}", r)));
    }
    return {};
  });
}

TEST_P(GpuSums, columns_become_whole_rows_of_their_owners) {
  run_gpu_ranks(GetParam(), [](GpuRank& rank) -> Result<void> {
    const int ranks = rank.device->size(), own = rank.device->rank();
    // Even words, a truncated last part, odd ones by NCCL, and more than a box holds.
    const std::int64_t cases[][3] = {{1, 64, 64 * ranks},
                                     {7, 64, 64 * ranks - 20},
                                     {9, 51, 51 * ranks - 3},
                                     {300, 37984, 37984 * ranks}};
    for (const auto& [rows, width, columns] : cases) {
      const auto value = [&](std::int64_t r, std::int64_t c) {
        return static_cast<float>(r * 131 + c % 8191);
      };
      const HostTensor part(DType::f32, {rows, width});
      for (std::int64_t i = 0; i < rows * width; ++i) {
        part->as<float>()[i] = value(i / width, own * width + i % width);
      }
      const Slice share = ceil_slice(rows, {own, ranks});
      TROUPE_TRY(const DeviceTensor local, rank.upload(part));
      TROUPE_TRY(const DeviceTensor whole,
                 rank.ops->memory().allocate(DType::f32, {share.count, columns}));
      TROUPE_TRY(const DeviceTensor scratch,
                 rank.ops->memory().allocate(DType::f32, {ranks * share.count, width}));
      TROUPE_CHECK(rank.device->columns_to_rows(local, whole, scratch));
      TROUPE_TRY(const HostTensor found, rank.download(whole));
      for (std::int64_t i = 0; i < share.count * columns; ++i) {
        const float expected = value(share.begin + i / columns, i % columns);
        if (found->as<float>()[i] == expected) continue;
        return fail(ErrorCode::internal, "rank {} of {}, {} rows, element {}: {}, expected {}", own,
                    ranks, rows, i, found->as<float>()[i], expected);
      }
    }
    return {};
  });
}

/// Begins sums in which other ranks take no part; ends when the group does.
Result<void> expect_side_sum_to_end(GpuRank& rank, OverlappedAllReduce& side, std::latch& waits) {
  const std::int64_t width = side.normed()[1];
  TROUPE_TRY(const DeviceTensor partial, rank.ops->memory().allocate(DType::bf16, {1, width}));
  TROUPE_TRY(const DeviceTensor residual, rank.ops->memory().allocate(DType::bf16, {1, width}));
  TROUPE_TRY(const DeviceTensor weight, rank.ops->memory().allocate(DType::f32, {width}));
  Result<void> ended = side.begin(0, partial);
  if (ended.ok()) {
    ended = side.norm(0, {.partial = partial,
                          .residual = residual,
                          .weight = weight,
                          .eps = 1e-6F,
                          .normed = side.normed().rows(0, 1),
                          .divided = true});
  }
  if (ended.ok()) ended = side.await(0);
  waits.count_down();
  if (ended.ok()) ended = rank.ops->stream().synchronize();
  if (ended.ok()) return fail(ErrorCode::internal, "the sum ended well");
  return ended.error().code == ErrorCode::cancelled ? Result<void>() : ended;
}

TEST_P(GpuSums, beside_other_work_end_by_an_abort_of_another_rank) {
  const int ranks = GetParam();
  std::latch waits(1), all_ended(ranks);
  run_gpu_ranks(ranks, [&](GpuRank& rank) -> Result<void> {
    TROUPE_TRY(const auto side, rank.device->open_overlapped_all_reduce(DType::bf16, 64, 1024));
    if (side == nullptr) return fail(ErrorCode::internal, "there are none");
    Result<void> ended;
    if (rank.device->rank() == 0) {
      ended = expect_side_sum_to_end(rank, *side, waits);
    } else {
      waits.wait();
      if (rank.device->rank() == 1) rank.device->abort();
    }
    all_ended.arrive_and_wait();  // rank 0's target memory must live until then
    return ended;
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuSums, testing::Values(2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace troupe
