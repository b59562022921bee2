#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include "models/families/family.hpp"
#include "parallel/collectives/forwarding_collectives.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/require.hpp"

// Ranks divide the work as their arrangement promises: checks what they request of each other, and
// when.

namespace troupe::golden {
namespace {

/// Counts the sums that a model requests.
class CountingCollectives final : public ForwardingCollectives {
 public:
  struct Counts {
    std::atomic<int> all_reduces = 0;
    std::atomic<int> reduce_scatters = 0;
    std::atomic<std::int64_t> max_rows_kept = 0;  ///< by one rank, in one sum
  };

  CountingCollectives(std::unique_ptr<Collectives> inner, Counts& counts)
      : ForwardingCollectives(std::move(inner)), counts_(counts) {}

  Result<void> all_reduce_tree(const Tensor& partial, const Tensor& sum) override {
    ++counts_.all_reduces;
    return ForwardingCollectives::all_reduce_tree(partial, sum);
  }
  Result<void> reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                   std::span<const std::int64_t> rows_per_rank) override {
    ++counts_.reduce_scatters;
    counts_.max_rows_kept = std::max(counts_.max_rows_kept.load(), sum[0]);
    return ForwardingCollectives::reduce_scatter_tree(partial, sum, rows_per_rank);
  }

 private:
  Counts& counts_;
};

TEST(SequenceParallel, keeps_a_share_of_the_rows_and_never_all_reduces) {
  const auto golden = golden_model("fable-draft");
  REQUIRE_OK(const auto prompts, read_prompts(golden->logits));
  CountingCollectives::Counts counts;
  const MeshRanks ranks{.shape = {.tensor = 2},
                        .sequence_parallel = true,
                        .wrap = [&](std::unique_ptr<Collectives> inner) {
                          return std::make_unique<CountingCollectives>(std::move(inner), counts);
                        }};
  const auto tokens = static_cast<std::int64_t>(prompts.back().ids.size());
  const auto ran = run_ranks(golden->checkpoint, DType::f32, ranks,
                             [&](Runner& runner, int) -> Result<std::vector<float>> {
                               std::vector<float> logits;
                               Sequence sequence{prompts.back().ids};
                               TROUPE_CHECK(runner.feed(sequence, whole, logits));
                               return logits;
                             });
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(counts.all_reduces, 0);
  // The embedding, and two blocks per layer, on each of the two ranks.
  EXPECT_EQ(counts.reduce_scatters % 2, 0);
  EXPECT_GT(counts.reduce_scatters, 2);
  EXPECT_EQ(counts.max_rows_kept, (tokens + 1) / 2);
}

/// Counts the gathers and exchanges that a model requests.
class CountingGathers final : public ForwardingCollectives {
 public:
  struct Counts {
    std::atomic<int> gathers = 0;
    std::atomic<int> exchanges = 0;
    std::atomic<std::int64_t> max_rows_sent = 0;  ///< by one rank, in one gather
  };

  CountingGathers(std::unique_ptr<Collectives> inner, Counts& counts)
      : ForwardingCollectives(std::move(inner)), counts_(counts) {}

  Result<void> all_gather(const Tensor& part, const Tensor& all,
                          std::span<const std::int64_t> rows_per_rank) override {
    ++counts_.gathers;
    counts_.max_rows_sent = std::max(counts_.max_rows_sent.load(), part[0]);
    return ForwardingCollectives::all_gather(part, all, rows_per_rank);
  }
  Result<void> all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                          const Tensor& receive,
                          std::span<const std::int64_t> receive_rows) override {
    ++counts_.exchanges;
    return ForwardingCollectives::all_to_all(send, send_rows, receive, receive_rows);
  }

 private:
  Counts& counts_;
};

/// What each context rank requests in passes over the beginning of a prompt.
class ContextParallel : public testing::Test {
 protected:
  void prepare(const std::string& model) {
    folder_ = golden_model(model)->checkpoint;
    REQUIRE_OK(const auto prompts, read_prompts(golden_model(model)->logits));
    ids_ = prompts.back().ids;
    ASSERT_GE(std::ssize(ids_), 6);
    REQUIRE_OK(const auto config, load_model_config(folder_));
    layers_ = static_cast<int>(config.layers);
  }
  std::int32_t all_rows() const { return static_cast<std::int32_t>(ids_.size()); }

  struct Calls {
    int gathers, exchanges;
    bool operator==(const Calls&) const = default;
  };
  Calls calls_of(int context, std::int32_t rows, std::int32_t logit_rows) {
    CountingGathers::Counts counts;
    const MeshRanks ranks{.shape = {.context = context},
                          .wrap = [&](std::unique_ptr<Collectives> inner) {
                            return std::make_unique<CountingGathers>(std::move(inner), counts);
                          }};
    const auto ran = run_ranks(
        folder_, DType::f32, ranks, [&](Runner& runner, int) -> Result<std::vector<float>> {
          Sequence sequence{ids_};
          const Share share{&sequence, rows, logit_rows};
          TROUPE_TRY([[maybe_unused]] const Tensor logits, runner.pass({&share, 1}));
          return std::vector<float>();
        });
    EXPECT_TRUE(ran.ok()) << ran.error().message;
    max_rows_sent_ = counts.max_rows_sent;
    return {counts.gathers / context, counts.exchanges / context};
  }

  std::filesystem::path folder_;
  std::vector<std::int32_t> ids_;
  int layers_ = 0;
  std::int64_t max_rows_sent_ = 0;
};

TEST_F(ContextParallel, exchanges_heads_twice_a_layer_where_each_rank_has_kv_heads) {
  prepare("fable-draft");
  EXPECT_EQ(calls_of(2, all_rows(), 0), Calls(0, 2 * layers_ - 1))
      << "the last layer of a pass without logits only stores";
  EXPECT_EQ(calls_of(2, all_rows(), 1), Calls(1, 2 * layers_)) << "and the rows that need logits";
  EXPECT_LE(max_rows_sent_, all_rows() / 2 + 1);
  EXPECT_EQ(calls_of(2, 1, 1), Calls(layers_, 0)) << "a single row is computed by each rank";
}

TEST_F(ContextParallel, gathers_keys_and_values_once_a_layer_where_heads_are_too_few) {
  prepare("deepseek3-a");
  EXPECT_EQ(calls_of(2, all_rows(), 0), Calls(layers_, 0));
  EXPECT_EQ(calls_of(2, all_rows(), 1), Calls(layers_ + 1, 0)) << "and the rows that need logits";
  EXPECT_LE(max_rows_sent_, all_rows() / 2 + 1);
  EXPECT_EQ(calls_of(2, 1, 1), Calls(0, 0)) << "a single row is computed by each rank";
  prepare("fable-draft");
  EXPECT_EQ(calls_of(3, all_rows(), 0), Calls(layers_, 0)) << "3 ranks do not divide the KV heads";
}

/// Adds up what all ranks send in all-to-alls.
class CountingExchanges final : public ForwardingCollectives {
 public:
  CountingExchanges(std::unique_ptr<Collectives> inner, std::atomic<std::size_t>& bytes)
      : ForwardingCollectives(std::move(inner)), bytes_(bytes) {}

  Result<void> all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                          const Tensor& receive,
                          std::span<const std::int64_t> receive_rows) override {
    bytes_ += send.bytes();
    return ForwardingCollectives::all_to_all(send, send_rows, receive, receive_rows);
  }

 private:
  std::atomic<std::size_t>& bytes_;
};

TEST(DealtExperts, are_sent_routed_rows_only) {
  const auto golden = golden_model("fable-moe");
  REQUIRE_OK(const auto prompts, read_prompts(golden->logits));
  REQUIRE_OK(const auto config, load_model_config(golden->checkpoint));
  for (const int tensor : {2, 4}) {
    constexpr int expert_ranks = 2;
    std::atomic<std::size_t> bytes = 0;
    const MeshRanks ranks{.shape = {.tensor = tensor},
                          .expert_parallel_size = expert_ranks,
                          .wrap = [&](std::unique_ptr<Collectives> inner) {
                            return std::make_unique<CountingExchanges>(std::move(inner), bytes);
                          }};
    const auto ran = run_ranks(golden->checkpoint, DType::f32, ranks,
                               [&](Runner& runner, int) -> Result<std::vector<float>> {
                                 std::vector<float> logits;
                                 Sequence sequence{prompts.back().ids};
                                 TROUPE_CHECK(runner.feed(sequence, whole, logits));
                                 return logits;
                               });
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    // There and back, once for each choice of a token and each rank with a part of that expert.
    const std::int64_t parts = tensor / expert_ranks;
    const std::int64_t rows =
        2 * parts * config.moe->top_k * static_cast<std::int64_t>(prompts.back().ids.size());
    const std::int64_t counts = tensor * tensor * config.moe->experts / expert_ranks;
    EXPECT_EQ(bytes,
              static_cast<std::size_t>(config.layers * 4 * (rows * config.hidden_size + counts)))
        << tensor << " ranks";
  }
}

using Clock = std::chrono::steady_clock;

struct Span {
  Clock::time_point begin;
  Clock::time_point end;
};

bool overlap(const Span& a, const Span& b) { return a.begin < b.end && b.begin < a.end; }

/// Records from when to when each of two stages computes its passes: the first until it sends, the
/// second from receiving until it is asked for the next pass or reports completion.
class TimedStages final : public ForwardingCollectives {
 public:
  struct Spans {
    std::vector<Span> first, second;
  };

  TimedStages(std::unique_ptr<Collectives> inner, Spans& spans)
      : ForwardingCollectives(std::move(inner)), spans_(spans) {}

  Result<void> send(const Tensor& tensor, int to) override {
    spans_.first.push_back({pass_began_, Clock::now()});
    if (spans_.first.size() == 1) TROUPE_CHECK(barrier());  // the other one has loaded its layers
    auto sent = ForwardingCollectives::send(tensor, to);
    pass_began_ = Clock::now();
    return sent;
  }
  Result<void> receive(const Tensor& tensor, int from) override {
    if (spans_.second.empty()) {
      TROUPE_CHECK(barrier());
    } else {
      spans_.second.back().end = Clock::now();
    }
    auto received = ForwardingCollectives::receive(tensor, from);
    const auto now = Clock::now();
    spans_.second.push_back({now, now});
    return received;
  }

 private:
  Spans& spans_;
  Clock::time_point pass_began_ = Clock::now();
};

TEST(Pipeline, computes_a_pass_while_the_next_stage_computes_the_one_before) {
  const auto golden = golden_model("fable-draft");
  REQUIRE_OK(const auto prompts, read_prompts(golden->logits));
  Sequence all;
  for (const GoldenPrompt& prompt : prompts) {
    all.tokens.insert(all.tokens.end(), prompt.ids.begin(), prompt.ids.end());
  }
  TimedStages::Spans spans;
  const MeshRanks ranks{.shape = {.pipeline = 2}, .wrap = [&](std::unique_ptr<Collectives> inner) {
                          return std::make_unique<TimedStages>(std::move(inner), spans);
                        }};
  const auto ran = run_ranks(golden->checkpoint, DType::f32, ranks,
                             [&](Runner& runner, int) -> Result<std::vector<float>> {
                               std::vector<float> logits;
                               Sequence sequence = all;
                               TROUPE_CHECK(runner.feed(sequence, 8, logits));
                               return logits;
                             });
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const std::size_t passes = (all.tokens.size() + 7) / 8;
  ASSERT_EQ(spans.first.size(), passes);
  ASSERT_EQ(spans.second.size(), passes);
  std::size_t overlapping = 0;
  for (std::size_t pass = 0; pass + 1 < passes; ++pass) {
    for (std::size_t later = pass + 1; later < passes; ++later) {
      if (!overlap(spans.second[pass], spans.first[later])) continue;
      ++overlapping;
      break;
    }
  }
  // A pass without overlap ran alone; if all do, there is no pipeline.
  EXPECT_GT(overlapping, 0U) << passes << " passes";
}

}  // namespace
}  // namespace troupe::golden
