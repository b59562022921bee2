#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "models/ops/cpu/cpu_ops.hpp"
#include "models/sampler/sampler.hpp"
#include "tests/unit/actors/worker/delayed_queue.hpp"

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

class DelayedSamplingOps final : public SamplingOps {
 public:
  DelayedSamplingOps(SamplingOps& inner, DelayedQueue& queue, const DelayedOptions& options)
      : inner_(inner), queue_(queue), options_(options) {}

  std::size_t chosen_taken() const { return chosen_taken_; }

  bool can_sample(const SampledRow& row, std::int64_t /*vocab*/) const override {
    const bool is_cut = row.top_k != 0 || row.top_p != 1.0F || row.min_p != 0.0F;
    return (options_.cuts || !is_cut) && (options_.edits || row.edits.tokens() == 0);
  }
  bool can_score(const ScoredRow& row, std::int64_t /*vocab*/) const override {
    return options_.scores && row.best <= RowScores::max_best;
  }

 private:
  void do_resolve_sampled_ids(const Tensor& chosen, const Tensor& ids) override {
    ++chosen_taken_;
    queue_.enqueue([=, this] { inner_.resolve_sampled_ids(chosen, ids); });
  }
  void do_sample(const Tensor& logits, std::span<const SampledRow> rows, const Tensor& tokens,
                 const Tensor& ids) override {
    bool edits_before = false;
    for (const SampledRow& row : rows) {
      const bool edits = row.edits.tokens() > 0;
      EXPECT_TRUE(edits || !edits_before) << "rows with edits come last";
      if (edits) expect_lists_within(row.edits, tokens.elements());
      edits_before = edits;
    }
    queue_.enqueue([=, this] {
      for (const SampledRow& row : rows) {
        const auto row_logits = edited(logits.rows(row.row, 1).span<float>(), row.edits,
                                       static_cast<const std::int32_t*>(tokens.data()));
        ids.as<std::int32_t>()[row.row] = choose_masked(row_logits, row);
      }
    });
  }

  void do_score(const Tensor& logits, std::span<const ScoredRow> rows, const Tensor& ids,
                const Tensor& scores) override {
    queue_.enqueue([=] {
      for (const ScoredRow& row : rows) {
        const std::int32_t id = row.id >= 0 ? row.id : ids.as<std::int32_t>()[row.row];
        static_cast<RowScores*>(scores.data())[row.row] =
            scores_of(logits.rows(row.row, 1).span<float>(), id, row.best);
      }
    });
  }

  /// sample() takes masked logits from edits only: here they are edits again.
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

  SamplingOps& inner_;
  DelayedQueue& queue_;
  DelayedOptions options_;
  SamplerScratch scratch_;
  std::size_t chosen_taken_ = 0;
};

class DelayedStreamOps final : public StreamOps {
 public:
  explicit DelayedStreamOps(DelayedQueue& queue) : queue_(queue) {}

  std::size_t replayed() const { return replayed_; }

  DeviceEvent record_event() override { return queue_.end(); }
  bool query(DeviceEvent event) override { return queue_.done() >= event; }
  Result<void> wait(DeviceEvent event) override {
    queue_.carry_out_until(event);
    return {};
  }
  Result<void> synchronize() override { return wait(record_event()); }
  Result<std::unique_ptr<CapturedGraph>> capture(
      const std::function<Result<void>()>& enqueue) override {
    auto graph = std::make_unique<Recorded>();
    queue_.record_to(&graph->operations);
    const Result<void> done = enqueue();
    queue_.record_to(nullptr);
    TROUPE_CHECK(done);
    return std::unique_ptr<CapturedGraph>(std::move(graph));
  }
  void replay(const CapturedGraph& graph) override {
    ++replayed_;
    for (const auto& operation : static_cast<const Recorded&>(graph).operations) {
      queue_.enqueue(operation);
    }
  }

 private:
  struct Recorded final : CapturedGraph {
    std::vector<std::function<void()>> operations;
  };

  DelayedQueue& queue_;
  std::size_t replayed_ = 0;
};

class DelayedMemoryOps final : public MemoryOps {
 public:
  DelayedMemoryOps(MemoryOps& inner, DelayedQueue& queue) : inner_(inner), queue_(queue) {}

  std::size_t downloaded_bytes() const { return downloaded_bytes_; }

  std::optional<DeviceMemory> available() override { return inner_.available(); }
  Result<DeviceTensor> allocate(DType dtype, const Shape& shape) override {
    return inner_.allocate(dtype, shape);
  }
  Result<DeviceTensor> allocate_host(DType dtype, const Shape& shape) override {
    return inner_.allocate_host(dtype, shape);
  }

 private:
  void do_upload(const Tensor& host, const Tensor& device) override {
    queue_.enqueue([=, this] { inner_.upload(host, device); });
  }
  void do_download(const Tensor& device, const Tensor& host) override {
    queue_.enqueue([=, this] {
      downloaded_bytes_ += device.bytes();
      inner_.download(device, host);
    });
  }

  MemoryOps& inner_;
  DelayedQueue& queue_;
  std::size_t downloaded_bytes_ = 0;
};

/// The CPU's Ops in a device's place: what is enqueued is carried out when somebody waits for it,
/// and reads host memory only then. It chooses tokens as far as its options say, and counts what
/// leaves it.
class DelayedOps final : public Ops {
 public:
  explicit DelayedOps(const DelayedOptions& options = {})
      : cpu_(*make_cpu_ops({.isa = CpuIsa::avx2})),
        queue_(options.at_once),
        attention_(cpu_->attention(), queue_, options.records),
        sampling_(cpu_->sampling(), queue_, options) {}

  std::size_t enqueued() const { return queue_.enqueued(); }
  std::size_t downloaded_bytes() const { return memory_.downloaded_bytes(); }
  std::size_t chosen_taken() const { return sampling_.chosen_taken(); }
  std::size_t replayed() const { return stream_.replayed(); }
  DelayedQueue& queue() { return queue_; }

  DType activation_dtype() const override { return cpu_->activation_dtype(); }
  std::int64_t rows_at_once() const override { return cpu_->rows_at_once(); }
  MemoryOps& memory() override { return memory_; }
  StreamOps& stream() override { return stream_; }
  WeightOps& weights() override { return cpu_->weights(); }
  DenseOps& dense() override { return dense_; }
  AttentionOps& attention() override { return attention_; }
  MoeOps& moe() override { return moe_; }
  SamplingOps& sampling() override { return sampling_; }

 private:
  std::unique_ptr<Ops> cpu_;
  DelayedQueue queue_;
  DelayedMemoryOps memory_{cpu_->memory(), queue_};
  DelayedStreamOps stream_{queue_};
  DelayedDenseOps dense_{cpu_->dense(), queue_};
  DelayedAttentionOps attention_;
  DelayedMoeOps moe_{cpu_->moe(), queue_};
  DelayedSamplingOps sampling_;
};

}  // namespace troupe
