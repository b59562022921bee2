#include <future>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/collectives/collective_checks.hpp"
#include "parallel/collectives/self_collectives.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"
#include "parallel/sharding/sharding.hpp"

namespace troupe {
namespace {

using Rows = std::vector<std::int64_t>;

SharedMemory make_region(int ranks) {
  auto created = SharedMemory::create(shm_collectives_bytes(ranks, 4096));
  return std::move(*created);
}

Result<std::unique_ptr<ShmCollectives>> attach(const SharedMemory& region, int rank, int ranks) {
  auto fd = region.duplicate_fd();
  auto mapped = SharedMemory::map(std::move(*fd));
  return ShmCollectives::attach(std::move(*mapped), rank, ranks);
}

template <class T>
ErrorCode code_of(const Result<T>& result) {
  EXPECT_FALSE(result.ok());
  return result.ok() ? ErrorCode::internal : result.error().code;
}

void fill(const Tensor& tensor, float value) {
  for (float& element : tensor.span<float>()) element = value;
}

TEST(SelfCollectives, every_call_is_a_copy) {
  SelfCollectives self;
  const HostTensor in(DType::f32, {3, 2});
  fill(in, 2.5f);
  for (int call = 0; call < 4; ++call) {
    const HostTensor out(DType::f32, {3, 2});
    const Rows rows{3};
    const Result<void> done = call == 0   ? self.all_reduce_tree(in, out)
                              : call == 1 ? self.reduce_scatter_tree(in, out, rows)
                              : call == 2 ? self.all_gather(in, out, rows)
                                          : self.all_to_all(in, rows, out, rows);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(out->span<float>()[5], 2.5f) << "call " << call;
  }
  EXPECT_TRUE(self.broadcast(in, 0).ok());
  EXPECT_TRUE(self.barrier().ok());
  EXPECT_EQ(self.staging(DType::f32, {3, 2}).data(), nullptr);
}

TEST(SelfCollectives, abort_cancels_what_comes_after) {
  SelfCollectives self;
  self.abort();
  EXPECT_EQ(code_of(self.barrier()), ErrorCode::cancelled);
}

TEST(Collectives, arguments_that_do_not_fit_are_refused) {
  SelfCollectives self;
  const HostTensor four(DType::f32, {4, 2});
  const HostTensor three(DType::f32, {3, 2});
  const HostTensor wide(DType::f32, {4, 3});
  const HostTensor halves(DType::bf16, {4, 2});
  const auto refused = ErrorCode::invalid_argument;
  EXPECT_EQ(code_of(self.all_reduce_tree(four, three)), refused);
  EXPECT_EQ(code_of(self.all_reduce_tree(halves, halves)), refused);
  EXPECT_EQ(code_of(self.all_gather(four, four, Rows{3})), refused);
  EXPECT_EQ(code_of(self.all_gather(four, four, Rows{2, 2})), refused);
  EXPECT_EQ(code_of(self.all_gather(four, wide, Rows{4})), refused);
  EXPECT_EQ(code_of(self.all_gather(four, halves, Rows{4})), refused);
  EXPECT_EQ(code_of(self.reduce_scatter_tree(four, four, Rows{-4})), refused);
  EXPECT_EQ(code_of(self.broadcast(four, 1)), refused);
  EXPECT_EQ(code_of(self.all_to_all(four, Rows{4}, three, Rows{3})), refused);
  EXPECT_EQ(code_of(self.columns_to_rows(four, three, four)), refused);
  EXPECT_EQ(code_of(self.columns_to_rows(four, wide, wide)), refused);
  EXPECT_EQ(code_of(self.columns_to_rows(four, four, three)), refused);
}

TEST(Collectives, a_sum_and_norm_wants_its_rows_of_the_residual_stream_and_a_weight_a_column) {
  const HostTensor rows(DType::bf16, {5, 8});
  const HostTensor share(DType::bf16, {2, 8});
  const HostTensor weight(DType::f32, {8});
  AllReduceRmsNorm sum{.partial = rows, .residual = rows, .weight = weight, .normed = rows};
  EXPECT_TRUE(check_all_reduce_rms_norm(sum, 2, 3).ok());
  sum.residual = share;
  EXPECT_EQ(code_of(check_all_reduce_rms_norm(sum, 2, 3)), ErrorCode::invalid_argument);
  sum.divided = true;  // shares of 2, 2 and 1 rows
  EXPECT_TRUE(check_all_reduce_rms_norm(sum, 0, 3).ok());
  EXPECT_TRUE(check_all_reduce_rms_norm(sum, 2, 3).ok());
  sum.weight = weight->rows(0, 7);
  EXPECT_EQ(code_of(check_all_reduce_rms_norm(sum, 0, 3)), ErrorCode::invalid_argument);
}

// Seven rows over three ranks are 3, 3 and 1; eleven columns in parts of four leave one out.
TEST(ShmCollectives, columns_become_whole_rows_of_their_owners) {
  constexpr int ranks = 3;
  constexpr std::int64_t rows = 7, width = 4, columns = 11;
  const SharedMemory region = make_region(ranks);
  const auto value = [](std::int64_t row, std::int64_t column) {
    return static_cast<float>(100 * row + column);
  };
  std::vector<std::future<Result<void>>> running;
  for (int rank = 0; rank < ranks; ++rank) {
    running.push_back(std::async(std::launch::async, [&, rank]() -> Result<void> {
      TROUPE_TRY(const auto group, attach(region, rank, ranks));
      const HostTensor part(DType::f32, {rows, width});
      for (std::int64_t i = 0; i < rows * width; ++i) {
        part->as<float>()[i] = value(i / width, rank * width + i % width);
      }
      const Slice own = ceil_slice(rows, {rank, ranks});
      const HostTensor whole(DType::f32, {own.count, columns});
      const HostTensor scratch(DType::f32, {ranks * own.count, width});
      TROUPE_CHECK(group->columns_to_rows(part, whole, scratch));
      for (std::int64_t i = 0; i < own.count * columns; ++i) {
        EXPECT_EQ(whole->as<float>()[i], value(own.begin + i / columns, i % columns))
            << "rank " << rank << ", element " << i;
      }
      return group->barrier();
    }));
  }
  for (auto& rank : running) {
    const Result<void> done = rank.get();
    EXPECT_TRUE(done.ok()) << done.error().message;
  }
}

TEST(ShmCollectives, places_are_taken_once_and_sizes_must_agree) {
  const SharedMemory region = make_region(2);
  const auto first = attach(region, 0, 2);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(code_of(attach(region, 0, 2)), ErrorCode::already_exists);
  EXPECT_EQ(code_of(attach(region, 1, 1)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(attach(region, 2, 2)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(attach(region, 0, 20)), ErrorCode::invalid_argument);
  EXPECT_TRUE(attach(region, 1, 2).ok());
}

TEST(ShmCollectives, staging_is_refused_where_it_is_too_small_and_as_the_sum) {
  const SharedMemory region = make_region(1);
  auto group = attach(region, 0, 1);
  ASSERT_TRUE(group.ok());
  EXPECT_EQ((*group)->staging(DType::f32, {1025}).data(), nullptr);
  const Tensor staged = (*group)->staging(DType::f32, {1024});
  ASSERT_NE(staged.data(), nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(staged.data()) % 64, 0u);
  EXPECT_EQ(code_of((*group)->all_reduce_tree(staged)), ErrorCode::invalid_argument);
}

TEST(ShmCollectives, rank_whose_arguments_are_wrong_ends_the_wait_of_the_others) {
  const SharedMemory region = make_region(2);
  auto first = attach(region, 0, 2);
  auto second = attach(region, 1, 2);
  ASSERT_TRUE(first.ok() && second.ok());
  const HostTensor tensor(DType::f32, {4});
  auto waiting = std::async(std::launch::async, [&] { return (*first)->all_reduce_tree(tensor); });
  EXPECT_EQ(code_of((*second)->all_gather(tensor, tensor, Rows{1})), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(waiting.get()), ErrorCode::cancelled);
  EXPECT_EQ(code_of((*second)->barrier()), ErrorCode::cancelled);
}

TEST(ShmCollectives, timeout_names_who_is_missing_and_ends_the_group) {
  const SharedMemory region = make_region(3);
  auto group = attach(region, 1, 3);
  ASSERT_TRUE(group.ok());
  (*group)->set_timeout(std::chrono::milliseconds(2));
  const auto done = (*group)->barrier();
  ASSERT_EQ(code_of(done), ErrorCode::timed_out);
  EXPECT_TRUE(done.error().message.ends_with("rank 0, 2 did not come within 2 ms"))
      << done.error().message;
  EXPECT_EQ(code_of((*group)->barrier()), ErrorCode::cancelled);
}

TEST(ShmCollectives, all_to_all_refuses_rows_that_the_sender_does_not_send) {
  const SharedMemory region = make_region(2);
  auto first = attach(region, 0, 2);
  auto second = attach(region, 1, 2);
  ASSERT_TRUE(first.ok() && second.ok());
  const HostTensor send(DType::i32, {3, 1});
  const HostTensor received(DType::i32, {2, 1});
  const HostTensor received_by_other(DType::i32, {2, 1});
  auto other = std::async(std::launch::async, [&] {
    return (*second)->all_to_all(send, Rows{3, 0}, received_by_other, Rows{2, 0});
  });
  const auto done = (*first)->all_to_all(send, Rows{1, 2}, received, Rows{1, 1});
  ASSERT_EQ(code_of(done), ErrorCode::invalid_argument);
  EXPECT_NE(done.error().message.find("rank 1 sends 12 bytes to rank 0, which expects 4"),
            std::string::npos)
      << done.error().message;
  // Rank 1's own arguments agree; it may be done already when rank 0 detects the mismatch.
  other.wait();
}

}  // namespace
}  // namespace troupe
