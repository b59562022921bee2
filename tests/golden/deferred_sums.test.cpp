#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "models/families/family.hpp"
#include "models/ops/cpu/cpu_ops.hpp"
#include "parallel/collectives/forwarding_collectives.hpp"
#include "parallel/sharding/sharding.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/golden/support/mesh_ranks.hpp"
#include "tests/support/require.hpp"
#include "tests/support/same_bits.hpp"

// A model's layers defer their sums to the next norm if the collectives sum, add and normalise in
// one operation, like those between GPUs do: here in host memory, so that bits must be equal.

namespace troupe::golden {
namespace {

/// NormingCollectives prefers dividing passes of more rows.
constexpr std::int64_t max_whole_rows = 4;
/// Passes of this many rows are cut into parts.
constexpr std::int64_t min_rows_in_parts = 7;

/// Computes sums when they are begun and shows them only when they are awaited.
class LateSums final : public OverlappedAllReduce {
 public:
  LateSums(Collectives& collectives, std::int64_t max_rows, std::int64_t width,
           std::atomic<int>& norms)
      : collectives_(collectives), rows_(DType::f32, {max_rows, width}), norms_(norms) {
    normed_ = rows_;
    min_rows_ = min_rows_in_parts;
  }

  Result<void> begin(int part, const Tensor& partial) override {
    const auto at = static_cast<std::size_t>(part);
    begun_[at] = HostTensor(DType::f32, partial.shape());
    std::ranges::copy(partial.span<float>(), begun_[at]->span<float>().begin());
    return {};
  }
  Result<void> norm(int part, const AllReduceRmsNorm& sum) override {
    ++norms_;
    const auto at = static_cast<std::size_t>(part);
    late_[at] = HostTensor(DType::f32, sum.normed.shape());
    seen_[at] = sum.normed;
    AllReduceRmsNorm whole = sum;
    whole.partial = begun_[at];
    whole.normed = late_[at];
    return collectives_.all_reduce_rms_norm(whole);
  }
  Result<void> await(int part) override {
    const auto at = static_cast<std::size_t>(part);
    std::ranges::copy(late_[at]->span<float>(), seen_[at].span<float>().begin());
    return {};
  }

 private:
  Collectives& collectives_;
  HostTensor rows_;
  std::atomic<int>& norms_;
  std::array<HostTensor, parts> begun_, late_;
  std::array<Tensor, parts> seen_;
};

class NormingCollectives final : public ForwardingCollectives {
 public:
  NormingCollectives(std::unique_ptr<Collectives> inner, std::unique_ptr<Ops> ops,
                     std::int64_t hidden, std::atomic<int>& norms, std::atomic<int>& late_norms)
      : ForwardingCollectives(std::move(inner)),
        ops_(std::move(ops)),
        hidden_(hidden),
        norms_(norms),
        late_norms_(late_norms) {}

  bool can_all_reduce_rms_norm(DType dtype, std::int64_t width) const override {
    return dtype == DType::f32 && width == hidden_;
  }
  bool prefers_sharded_residual(std::size_t bytes) const override {
    return bytes > static_cast<std::size_t>(max_whole_rows * hidden_) * sizeof(float);
  }
  Result<std::unique_ptr<OverlappedAllReduce>> open_overlapped_all_reduce(
      DType dtype, std::int64_t max_rows, std::int64_t width) override {
    EXPECT_EQ(dtype, DType::f32);
    return std::unique_ptr<OverlappedAllReduce>(
        std::make_unique<LateSums>(*this, max_rows, width, late_norms_));
  }
  Result<void> all_reduce_rms_norm(const AllReduceRmsNorm& call) override {
    ++norms_;
    const std::int64_t rows = call.partial[0];
    std::vector<std::int64_t> shares;
    for (int r = 0; r < size(); ++r) shares.push_back(ceil_slice(rows, {r, size()}).count);
    const Slice own = call.divided ? ceil_slice(rows, {rank(), size()}) : Slice{0, rows};
    if (call.residual[0] != own.count || call.normed[0] != rows) {
      return fail(ErrorCode::invalid_argument, "a norm of {} rows: residual {}, normed {}", rows,
                  call.residual.shape().to_string(), call.normed.shape().to_string());
    }
    const HostTensor sum(DType::f32, {own.count, hidden_});
    TROUPE_CHECK(call.divided ? reduce_scatter_tree(call.partial, sum, shares)
                              : all_reduce_tree(call.partial, sum));
    const Tensor normed = call.normed.rows(own.begin, own.count);
    if (own.count > 0 && call.begins) {
      ops_->memory().upload(sum, call.residual);
      ops_->dense().rms_norm(call.residual, call.weight, call.eps, normed);
    } else if (own.count > 0) {
      ops_->dense().add_rms_norm(call.residual, sum, call.weight, call.eps, normed);
    }
    return call.divided ? all_gather(normed, call.normed, shares) : Result<void>();
  }

 private:
  std::unique_ptr<Ops> ops_;
  std::int64_t hidden_;
  std::atomic<int>& norms_;
  std::atomic<int>& late_norms_;
};

/// Runs passes with and without logits, of few rows and of many.
Result<std::vector<float>> feed(Runner& runner, std::vector<std::int32_t> ids) {
  ids.resize(27, 5);
  Sequence sequence{ids};
  std::vector<float> logits;
  for (const auto& [rows, logit_rows] : std::vector<std::pair<std::int32_t, std::int32_t>>{
           {3, 0}, {9, 0}, {2, 2}, {3, 0}, {7, 2}, {1, 1}, {1, 0}, {1, 1}}) {
    const Share share{&sequence, rows, logit_rows};
    TROUPE_TRY(const Tensor found, runner.pass({&share, 1}));
    const auto values = found.span<float>();
    logits.insert(logits.end(), values.begin(), values.end());
  }
  return logits;
}

struct Arrangement {
  MeshShape shape;
  int expert_parallel_size = 1;
  bool in_parts = false;  ///< whether long passes are cut
};

void expect_bits_of_one_rank(const char* name, const Arrangement& arrangement) {
  SCOPED_TRACE(name);
  const auto golden = golden_model(name);
  REQUIRE_OK(const auto prompts, read_prompts(golden->logits));
  REQUIRE_OK(const auto config, load_model_config(golden->checkpoint));
  const RankBody body = [&](Runner& runner, int) { return feed(runner, prompts.front().ids); };
  REQUIRE_OK(const auto expected, run_ranks(golden->checkpoint, DType::f32, {}, body));
  std::atomic<int> norms = 0, late_norms = 0;
  MeshRanks ranks{.shape = arrangement.shape,
                  .expert_parallel_size = arrangement.expert_parallel_size};
  ranks.wrap = [&](std::unique_ptr<Collectives> inner) {
    return std::make_unique<NormingCollectives>(std::move(inner), std::move(*make_cpu_ops({})),
                                                config.hidden_size, norms, late_norms);
  };
  REQUIRE_OK(const auto found, run_ranks(golden->checkpoint, DType::f32, ranks, body));
  EXPECT_GT(norms, 0);
  EXPECT_EQ(late_norms > 0, arrangement.in_parts);
  expect_same_bits(found.back(), expected.front(), "logits of the last rank");
}

TEST(LeftSums, are_those_of_one_rank) {
  for (const char* name : {"fable-moe", "deepseek3-a"}) {
    expect_bits_of_one_rank(name, {.shape = {.tensor = 2}});
  }
}

TEST(LeftSums, are_made_part_by_part_beside_the_products_of_dense_models) {
  for (const char* name : {"fable-draft", "qwen2-a"}) {
    expect_bits_of_one_rank(name, {.shape = {.tensor = 2}, .in_parts = true});
  }
}

TEST(LeftSums, of_a_pass_without_logits_are_not_those_of_the_next) {
  for (const char* name : {"fable-draft", "deepseek3-a"}) {
    expect_bits_of_one_rank(name, {.shape = {.pipeline = 2, .tensor = 2}});
  }
}

TEST(LeftSums, are_whole_where_experts_want_all_rows) {
  for (const char* name : {"fable-moe", "deepseek3-a"}) {
    expect_bits_of_one_rank(name, {.shape = {.tensor = 2}, .expert_parallel_size = 2});
  }
}

}  // namespace
}  // namespace troupe::golden
