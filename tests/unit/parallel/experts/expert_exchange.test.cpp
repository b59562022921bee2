#include "parallel/experts/expert_exchange.hpp"

#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/collectives/self_collectives.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"

namespace troupe {
namespace {

using Ids = std::vector<std::int32_t>;

/// Counts the bytes that a rank sends to others and to itself.
class CountingCollectives final : public Collectives {
 public:
  explicit CountingCollectives(std::unique_ptr<Collectives> inner) : inner_(std::move(inner)) {}

  std::vector<std::size_t> bytes_of_calls;  ///< of each all_to_all

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Result<void> all_reduce_tree(const Tensor& /*partial*/, const Tensor& /*sum*/) override {
    return unexpected();
  }
  Result<void> reduce_scatter_tree(const Tensor& /*partial*/, const Tensor& /*sum*/,
                                   std::span<const std::int64_t> /*rows*/) override {
    return unexpected();
  }
  Result<void> all_gather(const Tensor& /*part*/, const Tensor& /*all*/,
                          std::span<const std::int64_t> /*rows*/) override {
    return unexpected();
  }
  Result<void> broadcast(const Tensor& /*tensor*/, int /*root*/) override { return unexpected(); }
  Result<void> all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                          const Tensor& receive,
                          std::span<const std::int64_t> receive_rows) override {
    bytes_of_calls.push_back(send.bytes());
    return inner_->all_to_all(send, send_rows, receive, receive_rows);
  }
  Result<void> send(const Tensor& /*tensor*/, int /*to*/) override { return unexpected(); }
  Result<void> receive(const Tensor& /*tensor*/, int /*from*/) override { return unexpected(); }
  Result<void> barrier() override { return unexpected(); }
  void abort() override { inner_->abort(); }
  bool aborted() const override { return inner_->aborted(); }
  Tensor staging(DType dtype, const Shape& shape) override { return inner_->staging(dtype, shape); }

 private:
  static Result<void> unexpected() {
    return fail(ErrorCode::internal, "an exchange is all-to-alls only");
  }
  std::unique_ptr<Collectives> inner_;
};

std::vector<std::unique_ptr<CountingCollectives>> make_group(int ranks) {
  auto region = SharedMemory::create(shm_collectives_bytes(ranks, 4096));
  std::vector<std::unique_ptr<CountingCollectives>> group;
  for (int rank = 0; rank < ranks; ++rank) {
    auto mapped = SharedMemory::map(std::move(*region->duplicate_fd()));
    auto attached = ShmCollectives::attach(std::move(*mapped), rank, ranks);
    EXPECT_TRUE(attached.ok());
    (*attached)->set_timeout(std::chrono::seconds(20));
    group.push_back(std::make_unique<CountingCollectives>(std::move(*attached)));
  }
  return group;
}

void on_each_rank(int ranks, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
}

/// Chooses `tokens` x top_k different experts each, as a router does.
Ids choose(const ExpertLayout& layout, std::int64_t tokens, unsigned seed) {
  std::mt19937 random(seed);
  Ids experts(static_cast<std::size_t>(layout.experts));
  std::iota(experts.begin(), experts.end(), 0);
  Ids ids;
  for (std::int64_t token = 0; token < tokens; ++token) {
    std::ranges::shuffle(experts, random);
    ids.insert(ids.end(), experts.begin(), experts.begin() + layout.top_k);
  }
  return ids;
}

Tensor view(const Ids& ids, std::int64_t top_k) {
  return {const_cast<std::int32_t*>(ids.data()),
          DType::i32,
          {static_cast<std::int64_t>(ids.size()) / top_k, top_k}};
}

// A row encodes its origin: [sender, token]. Its result encodes its computation: [sender, token,
// expert, part].
constexpr std::int64_t row_width = 2;
constexpr std::int64_t result_width = 4;

/// Computes a rank's experts: a result for each received row, by the sorted order.
void compute(const ExpertExchange& exchange, int rank, const Tensor& received,
             const Tensor& results) {
  const ExpertLayout& layout = exchange.layout();
  const std::int64_t first = rank % layout.expert_ranks * layout.local_experts();
  const auto offsets = exchange.offsets().span<std::int32_t>();
  const auto sorted = exchange.sorted_rows().span<std::int32_t>();
  ASSERT_EQ(offsets.front(), 0);
  ASSERT_EQ(offsets.back(), exchange.received_rows());
  for (std::int64_t e = 0; e < layout.local_experts(); ++e) {
    for (std::int32_t i = offsets[e]; i < offsets[e + 1]; ++i) {
      const auto* row = received.as<std::int32_t>() + sorted[i] * row_width;
      auto* result = results.as<std::int32_t>() + sorted[i] * result_width;
      result[0] = row[0];
      result[1] = row[1];
      result[2] = static_cast<std::int32_t>(first + e);
      result[3] = rank / layout.expert_ranks;
    }
  }
}

/// One exchange of a rank's tokens; every assignment's results must come back from its expert.
void exchange_and_check(ExpertExchange& exchange, int rank, const Ids& ids) {
  const std::int64_t top_k = exchange.layout().top_k;
  const auto assignments = static_cast<std::int64_t>(ids.size());
  const Result<void> planned = exchange.plan(view(ids, top_k));
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  ASSERT_EQ(exchange.sent_rows(), assignments * exchange.layout().parts);

  const HostTensor rows(DType::i32, {exchange.sent_rows(), row_width});
  const auto tokens = exchange.sent_tokens().span<std::int32_t>();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    rows->as<std::int32_t>()[i * row_width] = rank;
    rows->as<std::int32_t>()[i * row_width + 1] = tokens[i];
  }
  const HostTensor received(DType::i32, {exchange.received_rows(), row_width});
  const Result<void> dispatched = exchange.dispatch(rows, received);
  ASSERT_TRUE(dispatched.ok()) << dispatched.error().message;
  const HostTensor results(DType::i32, {exchange.received_rows(), result_width});
  compute(exchange, rank, received, results);
  const HostTensor returned(DType::i32, {exchange.sent_rows(), result_width});
  const Result<void> back = exchange.combine(results, returned);
  ASSERT_TRUE(back.ok()) << back.error().message;

  const auto places = exchange.rows_of_assignments().span<std::int32_t>();
  ASSERT_EQ(static_cast<std::int64_t>(places.size()), assignments);
  for (int part = 0; part < exchange.layout().parts; ++part) {
    for (std::int64_t pair = 0; pair < assignments; ++pair) {
      const std::int64_t row = part * assignments + places[static_cast<std::size_t>(pair)];
      const auto found = returned->rows(row, 1).span<std::int32_t>();
      EXPECT_THAT(found, testing::ElementsAre(rank, pair / top_k, ids[pair], part))
          << "rank " << rank << ", pair " << pair << ", part " << part;
    }
  }
}

/// Several exchanges over one group: rank r sends tokens[r], then others in turn.
void run(const ExpertLayout& layout, const std::vector<std::int64_t>& tokens) {
  const int ranks = layout.expert_ranks * layout.parts;
  const auto group = make_group(ranks);
  on_each_rank(ranks, [&](int rank) {
    auto exchange = ExpertExchange::create(*group[static_cast<std::size_t>(rank)],
                                           *group[static_cast<std::size_t>(rank)], layout);
    ASSERT_TRUE(exchange.ok()) << exchange.error().message;
    for (int round = 0; round < 4; ++round) {
      const std::int64_t count = tokens[static_cast<std::size_t>((rank + round) % ranks)];
      exchange_and_check(*exchange, rank,
                         choose(layout, count, static_cast<unsigned>(rank * 10 + round)));
    }
  });
}

TEST(ExpertExchange, rows_go_to_their_experts_and_results_come_back) {
  run({.experts = 8, .expert_ranks = 2, .parts = 1, .top_k = 3, .max_tokens = 20}, {20, 7});
  run({.experts = 16, .expert_ranks = 4, .parts = 1, .top_k = 4, .max_tokens = 9}, {9, 1, 8, 3});
}

TEST(ExpertExchange, every_part_of_a_split_expert_gets_the_row) {
  run({.experts = 4, .expert_ranks = 2, .parts = 2, .top_k = 2, .max_tokens = 11}, {3, 11, 0, 5});
}

TEST(ExpertExchange, ranks_without_tokens_serve_the_others) {
  run({.experts = 4, .expert_ranks = 2, .parts = 1, .top_k = 1, .max_tokens = 6}, {6, 0});
  run({.experts = 4, .expert_ranks = 4, .parts = 1, .top_k = 4, .max_tokens = 2}, {0, 2, 0, 0});
  run({.experts = 4, .expert_ranks = 2, .parts = 1, .top_k = 2, .max_tokens = 6}, {0, 0});
}

TEST(ExpertExchange, takes_all_tokens_of_all_ranks_on_one_rank) {
  const ExpertLayout layout{
      .experts = 4, .expert_ranks = 2, .parts = 1, .top_k = 2, .max_tokens = 5};
  const auto group = make_group(2);
  on_each_rank(2, [&](int rank) {
    auto exchange = ExpertExchange::create(*group[static_cast<std::size_t>(rank)],
                                           *group[static_cast<std::size_t>(rank)], layout);
    ASSERT_TRUE(exchange.ok());
    exchange_and_check(*exchange, rank, {2, 3, 3, 2, 2, 3, 2, 3, 3, 2});
    EXPECT_EQ(exchange->received_rows(), rank == 1 ? layout.max_received_rows() : 0);
  });
}

TEST(ExpertExchange, moves_routed_rows_and_counts_and_nothing_else) {
  const ExpertLayout layout{
      .experts = 8, .expert_ranks = 2, .parts = 2, .top_k = 3, .max_tokens = 1000};
  const auto group = make_group(4);
  const std::vector<std::int64_t> tokens{10, 0, 4, 7};
  on_each_rank(4, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    auto exchange = ExpertExchange::create(*group[at], *group[at], layout);
    ASSERT_TRUE(exchange.ok());
    exchange_and_check(*exchange, rank, choose(layout, tokens[at], 1));
    const auto sent = static_cast<std::size_t>(tokens[at] * 3 * 2);
    const std::size_t counts = 4 * 4 * sizeof(std::int32_t);
    EXPECT_THAT(group[at]->bytes_of_calls,
                testing::ElementsAre(counts, sent * row_width * sizeof(std::int32_t),
                                     static_cast<std::size_t>(exchange->received_rows()) *
                                         result_width * sizeof(std::int32_t)));
  });
  std::size_t returned = 0;
  std::size_t dispatched = 0;
  for (const auto& rank : group) {
    dispatched += rank->bytes_of_calls[1] / row_width;
    returned += rank->bytes_of_calls[2] / result_width;
  }
  EXPECT_EQ(dispatched, 21 * 3 * 2 * sizeof(std::int32_t)) << "as many rows as were routed";
  EXPECT_EQ(returned, dispatched);
}

TEST(ExpertExchange, refuses_what_the_layout_does_not_allow) {
  SelfCollectives alone;
  const ExpertLayout layout{
      .experts = 4, .expert_ranks = 1, .parts = 1, .top_k = 2, .max_tokens = 2};
  auto exchange = ExpertExchange::create(alone, alone, layout);
  ASSERT_TRUE(exchange.ok());
  const Result<void> too_many = exchange->plan(view({0, 1, 0, 1, 0, 1}, 2));
  ASSERT_FALSE(too_many.ok());
  EXPECT_EQ(too_many.error().message, "an exchange of 3 tokens; this one takes 2");
  const Result<void> no_expert = exchange->plan(view({0, 4}, 2));
  ASSERT_FALSE(no_expert.ok());
  EXPECT_EQ(no_expert.error().message, "expert 4 of 4");

  const auto other =
      ExpertExchange::create(alone, alone, {.experts = 4, .expert_ranks = 2, .parts = 2});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().message,
            "experts in 2 parts over 2 ranks each need a group of 4 ranks, found 1");
}

// The larger rank was loaded with larger limits: its rows would not fit here.
TEST(ExpertExchange, refuses_more_rows_than_its_own_limits_allow) {
  const auto group = make_group(2);
  std::vector<Result<void>> outcomes(2);
  on_each_rank(2, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const ExpertLayout layout{
        .experts = 2, .expert_ranks = 2, .parts = 1, .top_k = 1, .max_tokens = rank + 1};
    auto exchange = ExpertExchange::create(*group[at], *group[at], layout);
    ASSERT_TRUE(exchange.ok());
    outcomes[at] = exchange->plan(view(Ids(at + 1, 0), 1));
  });
  ASSERT_FALSE(outcomes[0].ok());
  EXPECT_EQ(outcomes[0].error().message,
            "rank 1 of the experts' group announces 2 rows, of at most 1: do all ranks have the "
            "same limits?");
}

}  // namespace
}  // namespace troupe
