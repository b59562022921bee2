#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/collectives/forwarding_collectives.hpp"
#include "parallel/collectives/shm/shm_collectives.hpp"
#include "runtime/memory/shared_memory.hpp"
#include "tests/support/require.hpp"
#include "tests/unit/actors/worker/delayed_ops.hpp"
#include "tests/unit/actors/worker/runner_rank.hpp"

// Replicas that share dense layers, with passes that a device captures.

namespace troupe {
namespace {

constexpr int replicas = 2;

/// A device's collectives: calls are enqueued, and recorded while a pass is captured.
class DelayedCollectives final : public ForwardingCollectives {
 public:
  DelayedCollectives(std::shared_ptr<Collectives> inner, DelayedQueue& queue)
      : ForwardingCollectives(std::move(inner)), queue_(queue) {}

  Result<void> reduce_scatter_tree(const Tensor& partial, const Tensor& sum,
                                   std::span<const std::int64_t> rows_per_rank) override {
    return enqueue([=, this, rows = copy(rows_per_rank)] {
      return inner().reduce_scatter_tree(partial, sum, rows);
    });
  }
  Result<void> all_gather(const Tensor& part, const Tensor& all,
                          std::span<const std::int64_t> rows_per_rank) override {
    return enqueue(
        [=, this, rows = copy(rows_per_rank)] { return inner().all_gather(part, all, rows); });
  }
  Result<void> all_to_all(const Tensor& send, std::span<const std::int64_t> send_rows,
                          const Tensor& receive,
                          std::span<const std::int64_t> receive_rows) override {
    return enqueue([=, this, sent = copy(send_rows), received = copy(receive_rows)] {
      return inner().all_to_all(send, sent, receive, received);
    });
  }
  Tensor staging(DType dtype, const Shape& shape) override { return {nullptr, dtype, shape}; }

 private:
  static std::vector<std::int64_t> copy(std::span<const std::int64_t> rows) {
    return {rows.begin(), rows.end()};
  }
  template <class Call>
  Result<void> enqueue(Call call) {
    queue_.enqueue([call = std::move(call)] {
      const Result<void> called = call();
      EXPECT_TRUE(called.ok()) << called.error().message;
    });
    return {};
  }

  DelayedQueue& queue_;
};

/// The plans of one replica: `sequences` prompts, then a token for each in every step until `ends`,
/// and nothing after that.
std::vector<StepPlan> plans_of(SequenceId sequences, std::uint64_t ends, std::uint64_t steps) {
  const auto prompt_of = [](SequenceId id) { return static_cast<std::int32_t>(3 + id); };
  std::vector<StepPlan> plans;
  for (std::uint64_t step = 0; step < steps; ++step) {
    StepPlan& plan = plans.emplace_back();
    plan.step = step;
    for (SequenceId id = 0; id < sequences && step <= ends; ++id) {
      if (step == ends) {
        plan.released.push_back(id);
        continue;
      }
      const std::int32_t prompt = prompt_of(id);
      if (step > 0) {
        const auto position = static_cast<std::int32_t>(prompt + step - 1);
        plan.steps.push_back(
            {.id = id, .first_position = position, .tokens = 1, .new_blocks = {}, .sample = true});
        continue;
      }
      NewSequence sequence;
      sequence.id = id;
      sequence.prompt_tokens = prompt;
      sequence.sampling.temperature = 0.0F;
      for (std::int32_t t = 0; t < prompt; ++t) {
        sequence.tokens.push_back(static_cast<std::int32_t>(7 * id + 31 * t + sequences) % 250);
      }
      plan.started.push_back(std::move(sequence));
      const auto block = static_cast<std::int32_t>(2 * id);
      plan.steps.push_back(
          {.id = id, .tokens = prompt, .new_blocks = {block, block + 1}, .sample = true});
    }
  }
  return plans;
}

using Tokens = std::vector<std::vector<std::int32_t>>;  ///< of each result, step after step

Result<Tokens> take_all(const RunnerRank& rank, const std::vector<StepPlan>& plans) {
  Tokens tokens;
  for (const StepPlan& plan : plans) {
    TROUPE_TRY(const StepResult result, rank.take(plan));
    for (const SequenceResult& of : result.results) tokens.push_back(of.tokens);
  }
  return tokens;
}

struct Taken {
  Tokens tokens;
  std::size_t replayed = 0;
};

/// Runs the plans of each replica on a device that captures passes.
std::vector<Result<Taken>> take_together(const std::vector<std::vector<StepPlan>>& plans,
                                         bool drafts = false) {
  const auto mesh = Mesh::create({.data = replicas}, 1, true);
  const auto region = SharedMemory::create(shm_collectives_bytes(replicas));
  EXPECT_TRUE(mesh.ok() && region.ok());
  std::vector<std::shared_ptr<Collectives>> groups;
  for (int replica = 0; replica < replicas; ++replica) {
    auto mapped = SharedMemory::map(*region->duplicate_fd());
    auto group = ShmCollectives::attach(*std::move(mapped), replica, replicas);
    EXPECT_TRUE(group.ok());
    groups.push_back(*std::move(group));
  }
  const auto run = [&](int replica) -> Result<Taken> {
    const auto at = static_cast<std::size_t>(replica);
    auto device = std::make_unique<DelayedOps>(
        DelayedOptions{.cuts = true, .at_once = true, .records = true});
    const DelayedOps& ops = *device;
    DelayedCollectives on_device(groups[at], device->queue());
    ParallelContext parallel;
    parallel.mesh = *mesh;
    parallel.rank = replica;
    parallel.dense = RankGroup(groups[at].get(), &on_device);
    TROUPE_TRY(const RunnerRank rank, RunnerRank::make(std::move(device), 20, parallel));
    if (drafts) rank.runner->enable_drafting();
    TROUPE_TRY(Tokens tokens, take_all(rank, plans[at]));
    return Taken{std::move(tokens), ops.replayed()};
  };
  std::vector<Result<Taken>> found(replicas, Taken());
  {
    std::vector<std::jthread> threads;
    for (int replica = 0; replica < replicas; ++replica) {
      threads.emplace_back([&, replica] {
        const auto at = static_cast<std::size_t>(replica);
        found[at] = run(replica);
        if (!found[at].ok()) groups[at]->abort();
      });
    }
  }
  return found;
}

void expect_the_tokens_of_one_rank(const std::vector<std::vector<StepPlan>>& plans,
                                   std::size_t replayed, bool drafts = false) {
  const auto found = take_together(plans, drafts);
  for (std::size_t replica = 0; replica < found.size(); ++replica) {
    SCOPED_TRACE(testing::Message() << "replica " << replica);
    ASSERT_TRUE(found[replica].ok()) << found[replica].error().message;
    REQUIRE_OK(const RunnerRank plain, RunnerRank::make_on_cpu());
    REQUIRE_OK(const Tokens expected, take_all(plain, plans[replica]));
    EXPECT_EQ(found[replica]->tokens, expected);
    EXPECT_EQ(found[replica]->replayed, replayed);
  }
}

TEST(SharedLayers, one_captured_pass_serves_replicas_with_other_numbers_of_rows) {
  // Three rows and one are padded to four on both. The first such pass runs as it is.
  expect_the_tokens_of_one_rank({plans_of(3, 8, 8), plans_of(1, 8, 8)}, 6);
}

TEST(SharedLayers, a_replica_without_rows_replays_the_pass_of_the_others) {
  expect_the_tokens_of_one_rank({plans_of(3, 8, 8), plans_of(1, 4, 8)}, 6);
  expect_the_tokens_of_one_rank({plans_of(0, 0, 6), plans_of(2, 6, 6)}, 4);
}

TEST(SharedLayers, no_pass_is_captured_where_one_replica_has_a_prompt_or_drafts) {
  std::vector<StepPlan> late = plans_of(2, 8, 4);
  for (StepPlan& plan : late) plan.step += 4;
  std::vector<StepPlan> waits = plans_of(0, 0, 4);
  waits.insert(waits.end(), late.begin(), late.end());
  // Passes 1 to 3 of one row and 5 to 7 of two have graphs; in pass 4 the other has prompts.
  expect_the_tokens_of_one_rank({plans_of(1, 8, 8), waits}, 2 + 2);
  expect_the_tokens_of_one_rank({plans_of(3, 8, 8), plans_of(1, 8, 8)}, 0, true);
}

TEST(SharedLayers, replicas_take_as_many_passes_as_the_one_with_the_longest_prompts) {
  // 11 prompts of 3 to 13 tokens are three passes of at most 40 rows; the other has one pass.
  expect_the_tokens_of_one_rank({plans_of(11, 1, 1), plans_of(1, 1, 1)}, 0);
}

}  // namespace
}  // namespace troupe
