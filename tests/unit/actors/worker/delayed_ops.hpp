#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "models/ops/cpu/cpu_ops_class.hpp"
#include "models/sampler/sampler.hpp"

namespace troupe {

/// A naive implementation of RowEdits.
inline std::vector<float> edited(std::span<const float> logits, const RowEdits& edits,
                                 const std::int32_t* tokens) {
  std::vector<float> found(logits.begin(), logits.end());
  constexpr float masked = -std::numeric_limits<float>::infinity();
  const std::int32_t* next = tokens + edits.first;
  const auto take = [&](std::int32_t count) {
    return std::span(std::exchange(next, next + count), static_cast<std::size_t>(count));
  };
  const auto at = [&](std::int32_t id) -> float& { return found[static_cast<std::size_t>(id)]; };
  const std::set<std::int32_t> allowed(next, next + edits.allowed);
  take(edits.allowed);
  for (std::int32_t id = 0; !allowed.empty() && id < std::ssize(found); ++id) {
    if (!allowed.contains(id)) at(id) = masked;
  }
  for (const std::int32_t id : take(edits.masked)) at(id) = masked;
  for (std::int32_t i = 0; i < edits.biased; ++i) {
    const auto pair = take(2);
    at(pair[0]) += std::bit_cast<float>(pair[1]);
  }
  std::map<std::int32_t, int> counts;
  next = tokens + edits.history;
  for (const std::int32_t id : take(edits.prompt)) counts[id] += 0;
  for (const std::int32_t id : take(edits.output)) counts[id] += 1;
  for (const auto& [id, count] : counts) {
    at(id) = at(id) > 0 ? at(id) / edits.repetition_penalty : at(id) * edits.repetition_penalty;
    if (count == 0) continue;
    at(id) -= edits.frequency_penalty * static_cast<float>(count);
    at(id) -= edits.presence_penalty;
  }
  return found;
}

inline void expect_lists_within(const RowEdits& edits, std::int64_t tokens) {
  EXPECT_LE(edits.first + edits.allowed + edits.masked + 2 * edits.biased, tokens);
  EXPECT_LE(edits.history + edits.prompt + edits.output, tokens);
}

struct DelayedOptions {
  bool cuts = false;     ///< samples with top_k, top_p and min_p
  bool scores = false;   ///< finds log-probabilities
  bool edits = false;    ///< edits logits
  bool at_once = false;  ///< carries out everything immediately
  bool records = false;  ///< can capture passes
};

/// The CPU's Ops in place of a device: enqueued work is carried out when somebody waits for it, and
/// reads host memory only then. It samples tokens as far as its options allow, and counts what
/// leaves it.
class DelayedOps final : public CpuOps {
 public:
  explicit DelayedOps(const DelayedOptions& options = {})
      : CpuOps({.threads = 1}, kernels_for(CpuIsa::avx2)), options_(options) {}

  std::size_t enqueued() const { return enqueued_.size(); }
  std::size_t downloaded_bytes() const { return downloaded_bytes_; }
  std::size_t chosen_taken() const { return chosen_taken_; }
  std::size_t replayed() const { return replayed_; }

  DeviceEvent record_event() override { return done_ + enqueued_.size(); }
  bool query(DeviceEvent event) override { return done_ >= event; }
  Result<void> wait(DeviceEvent event) override {
    while (done_ < event) carry_out_next();
    return {};
  }
  Result<void> synchronize() override { return wait(record_event()); }

  bool supports_graph(const AttentionShape& /*shape*/, DType /*stored*/) const override {
    return options_.records;
  }
  Result<std::unique_ptr<CapturedGraph>> capture(
      const std::function<Result<void>()>& enqueue) override {
    auto graph = std::make_unique<Recorded>();
    recorded_ = &graph->operations;
    const Result<void> done = enqueue();
    recorded_ = nullptr;
    TROUPE_CHECK(done);
    return std::unique_ptr<CapturedGraph>(std::move(graph));
  }
  void replay(const CapturedGraph& graph) override {
    ++replayed_;
    for (const auto& operation : static_cast<const Recorded&>(graph).operations) {
      enqueue(operation);
    }
  }

  Result<std::unique_ptr<KvSwap>> make_swap(std::span<const KvLayer> caches,
                                            std::int64_t host_blocks) override {
    TROUPE_TRY(auto swap, CpuOps::make_swap(caches, host_blocks));
    return std::unique_ptr<KvSwap>(std::make_unique<LateKvSwap>(*this, std::move(swap)));
  }

  void upload(const Tensor& host, const Tensor& device) override {
    enqueue([=, this] { CpuOps::upload(host, device); });
  }
  void download(const Tensor& device, const Tensor& host) override {
    enqueue([=, this] {
      downloaded_bytes_ += device.bytes();
      CpuOps::upload(device, host);
    });
  }
  void embed(const Tensor& table, const Tensor& ids, std::int64_t vocab_begin,
             const Tensor& out) override {
    enqueue([=, this] { CpuOps::embed(table, ids, vocab_begin, out); });
  }
  void rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out) override {
    enqueue([=, this] { CpuOps::rms_norm(x, weight, eps, out); });
  }
  void add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, float eps,
                    const Tensor& out) override {
    enqueue([=, this] { CpuOps::add_rms_norm(residual, x, weight, eps, out); });
  }
  void add(const Tensor& residual, const Tensor& x) override {
    enqueue([=, this] { CpuOps::add(residual, x); });
  }
  void add_bias(const Tensor& x, const Tensor& bias) override {
    enqueue([=, this] { CpuOps::add_bias(x, bias); });
  }
  void linear(const Linear& weight, const Tensor& x, const Tensor& out) override {
    enqueue([=, this, &weight] { CpuOps::linear(weight, x, out); });
  }
  void norm_rope_store(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm, float eps,
                       const Tensor& rope, const AttentionShape& shape, const AttentionBatch& batch,
                       const KvLayer& cache, const Tensor& q_out) override {
    enqueue([=, this, later = Batch(batch)] {
      CpuOps::norm_rope_store(qkv, q_norm, k_norm, eps, rope, shape, later.get(), cache, q_out);
    });
  }
  void attention(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                 const KvLayer& cache, const Tensor& out) override {
    enqueue(
        [=, this, later = Batch(batch)] { CpuOps::attention(q, shape, later.get(), cache, out); });
  }
  void silu_mul(const Tensor& gate_up, const Tensor& out) override {
    enqueue([=, this] { CpuOps::silu_mul(gate_up, out); });
  }
  void route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
             const Tensor& ids, const Tensor& weights) override {
    enqueue([=, this] { CpuOps::route(logits, bias, options, ids, weights); });
  }
  void permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) override {
    enqueue([=, this] { CpuOps::permute(ids, first_expert, batch); });
  }
  void count_rows(const ExpertBatch& batch, const Tensor& counts) override {
    enqueue([=, this] { CpuOps::count_rows(batch, counts); });
  }
  void grouped_linear(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                      std::int64_t top_k, bool gather, bool scatter, const Tensor& out) override {
    enqueue([=, this, &weights] {
      CpuOps::grouped_linear(weights, x, batch, top_k, gather, scatter, out);
    });
  }
  void combine(const Tensor& x, const Tensor& weights, const Tensor& out) override {
    enqueue([=, this] { CpuOps::combine(x, weights, out); });
  }
  void combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                     const Tensor& out) override {
    enqueue([=, this] { CpuOps::combine_local(x, choices, local, out); });
  }
  void gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) override {
    enqueue([=, this] { CpuOps::gather_rows(x, rows, out); });
  }
  void resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) override {
    ++chosen_taken_;
    enqueue([=, this] { CpuOps::resolve_sampled_ids(chosen, ids); });
  }

  bool can_sample(const SampledRow& row, std::int64_t /*vocab*/) const override {
    const bool is_cut = row.top_k != 0 || row.top_p != 1.0F || row.min_p != 0.0F;
    return (options_.cuts || !is_cut) && (options_.edits || row.edits.tokens() == 0);
  }
  void sample(const Tensor& logits, std::span<const SampledRow> rows, const Tensor& tokens,
              const Tensor& ids) override {
    bool edits_before = false;
    for (const SampledRow& row : rows) {
      const bool edits = row.edits.tokens() > 0;
      EXPECT_TRUE(edits || !edits_before) << "rows with edits come last";
      if (edits) expect_lists_within(row.edits, tokens.elements());
      edits_before = edits;
    }
    enqueue([=, this] {
      for (const SampledRow& row : rows) {
        const auto row_logits = edited(logits.rows(row.row, 1).span<float>(), row.edits,
                                       static_cast<const std::int32_t*>(tokens.data()));
        ids.as<std::int32_t>()[row.row] = choose_masked(row_logits, row);
      }
    });
  }

  bool can_score(const ScoredRow& row, std::int64_t /*vocab*/) const override {
    return options_.scores && row.best <= RowScores::max_best;
  }
  void score(const Tensor& logits, std::span<const ScoredRow> rows, const Tensor& ids,
             const Tensor& scores) override {
    enqueue([=] {
      for (const ScoredRow& row : rows) {
        const std::int32_t id = row.id >= 0 ? row.id : ids.as<std::int32_t>()[row.row];
        static_cast<RowScores*>(scores.data())[row.row] =
            scores_of(logits.rows(row.row, 1).span<float>(), id, row.best);
      }
    });
  }

 private:
  /// Copies as late as it may: in join().
  class LateKvSwap final : public KvSwap {
   public:
    LateKvSwap(DelayedOps& ops, std::unique_ptr<KvSwap> swap) : ops_(ops), swap_(std::move(swap)) {}
    void copy_out(std::span<const SwappedBlock> blocks) override {
      copies_.push_back(
          [this, later = std::vector(blocks.begin(), blocks.end())] { swap_->copy_out(later); });
    }
    void copy_in(std::span<const SwappedBlock> blocks) override {
      copies_.push_back(
          [this, later = std::vector(blocks.begin(), blocks.end())] { swap_->copy_in(later); });
    }
    void join() override {
      for (const auto& copy : std::exchange(copies_, {})) ops_.enqueue(copy);
    }

   private:
    DelayedOps& ops_;
    std::unique_ptr<KvSwap> swap_;
    std::vector<std::function<void()>> copies_;
  };

  struct Recorded final : CapturedGraph {
    std::vector<std::function<void()>> operations;
  };

  /// A batch for later: the host's data of its sequences is copied, or, if captured, read from the
  /// device's later.
  class Batch {
   public:
    explicit Batch(const AttentionBatch& batch)
        : batch_(batch), sequences_(batch.sequences.begin(), batch.sequences.end()) {}
    AttentionBatch get() const {
      AttentionBatch batch = batch_;
      batch.sequences = sequences_;
      if (batch.graph_captured) {
        batch.sequences = {static_cast<const SequenceSpan*>(batch.spans.data()),
                           static_cast<std::size_t>(batch.spans[0])};
      }
      return batch;
    }

   private:
    AttentionBatch batch_;
    std::vector<SequenceSpan> sequences_;
  };

  /// sample() takes masked logits from edits only: here they become edits again.
  std::int32_t choose_masked(const std::vector<float>& logits, const SampledRow& row) {
    SamplingParams params;
    params.temperature = row.temperature;
    params.top_p = row.top_p;
    params.min_p = row.min_p;
    params.top_k = row.top_k;
    params.seed = row.seed;
    std::vector<float> finite = logits;
    for (std::int32_t id = 0; float& logit : finite) {
      if (logit != -std::numeric_limits<float>::infinity()) params.allowed_token_ids.push_back(id);
      if (logit == -std::numeric_limits<float>::infinity()) logit = 0.0F;
      ++id;
    }
    if (params.allowed_token_ids.size() == finite.size()) params.allowed_token_ids.clear();
    params.choice = row.choice;
    const std::vector<std::int32_t> before(row.position, 0);
    return troupe::sample(finite, params, TokenHistory{before, {}}, scratch_).id;
  }

  static RowScores scores_of(std::span<const float> logits, std::int32_t id, std::int32_t best) {
    RowScores scores;
    if (id < 0 || !std::ranges::all_of(logits, [](float x) { return std::isfinite(x); })) {
      return scores;
    }
    scores.id = id;
    scores.logit = logits[static_cast<std::size_t>(id)];
    scores.max = *std::ranges::max_element(logits);
    double sum = 0;
    std::vector<std::int32_t> order;
    for (std::int32_t i = 0; const float logit : logits) {
      sum += std::exp(static_cast<double>(logit) - static_cast<double>(scores.max));
      scores.rank += logit > scores.logit ? 1 : 0;
      order.push_back(i++);
    }
    ++scores.rank;
    scores.sum = static_cast<std::uint64_t>(sum * 0x1p44);
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](std::int32_t i) { return logits[static_cast<std::size_t>(i)]; });
    for (std::int32_t i = 0; i < best; ++i) {
      scores.best_ids[i] = order[static_cast<std::size_t>(i)];
      scores.best_logits[i] = logits[static_cast<std::size_t>(scores.best_ids[i])];
    }
    return scores;
  }

  void enqueue(std::function<void()> operation) {
    if (recorded_ != nullptr) {
      recorded_->push_back(std::move(operation));
      return;
    }
    enqueued_.push_back(std::move(operation));
    while (options_.at_once && !enqueued_.empty()) carry_out_next();
  }
  void carry_out_next() {
    const auto operation = std::move(enqueued_.front());
    enqueued_.pop_front();
    operation();
    ++done_;
  }

  DelayedOptions options_;
  std::deque<std::function<void()>> enqueued_;
  DeviceEvent done_ = 0;
  std::vector<std::function<void()>>* recorded_ = nullptr;
  std::size_t downloaded_bytes_ = 0;
  std::size_t chosen_taken_ = 0;
  std::size_t replayed_ = 0;
  SamplerScratch scratch_;
};

}  // namespace troupe
