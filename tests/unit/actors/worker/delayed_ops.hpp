#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "models/ops/cpu/cpu_ops_class.hpp"
#include "models/sampler/sampler.hpp"

namespace troupe {

struct DelayedOptions {
  bool at_once = false;  ///< carries out everything when it is told
  bool records = false;  ///< can record passes
};

/// The CPU's Ops in a device's place: what is enqueued is carried out when somebody waits for it,
/// and reads host memory only then. It chooses tokens, as long as nothing is edited.
class DelayedOps final : public CpuOps {
 public:
  explicit DelayedOps(const DelayedOptions& options = {})
      : CpuOps({.threads = 1}, kernels_for(CpuIsa::avx2)), options_(options) {}

  std::size_t chosen_taken() const { return chosen_taken_; }
  std::size_t replayed() const { return replayed_; }

  Mark mark() override { return done_ + enqueued_.size(); }
  bool is_reached(Mark mark) override { return done_ >= mark; }
  Result<void> wait(Mark mark) override {
    while (done_ < mark) carry_out_next();
    return {};
  }
  Result<void> synchronize() override { return wait(mark()); }

  bool can_record(const AttentionShape& /*shape*/, DType /*stored*/) const override {
    return options_.records;
  }
  Result<std::unique_ptr<Recording>> record(const std::function<Result<void>()>& enqueue) override {
    auto recording = std::make_unique<Recorded>();
    recorded_ = &recording->operations;
    const Result<void> done = enqueue();
    recorded_ = nullptr;
    TROUPE_CHECK(done);
    return std::unique_ptr<Recording>(std::move(recording));
  }
  void replay(const Recording& recording) override {
    ++replayed_;
    for (const auto& operation : static_cast<const Recorded&>(recording).operations) {
      enqueue(operation);
    }
  }

  void upload(const Tensor& host, const Tensor& device) override {
    enqueue([=, this] { CpuOps::upload(host, device); });
  }
  void download(const Tensor& device, const Tensor& host) override {
    enqueue([=, this] { CpuOps::upload(device, host); });
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
  void take_chosen(const Tensor& chosen, const Tensor& ids) override {
    ++chosen_taken_;
    enqueue([=, this] { CpuOps::take_chosen(chosen, ids); });
  }

  bool can_sample(const SampledRow& row, std::int64_t /*vocab*/) const override {
    return row.edits.tokens() == 0;
  }
  void sample(const Tensor& logits, std::span<const SampledRow> rows, const Tensor& /*edited*/,
              const Tensor& ids) override {
    enqueue([=, this] {
      for (const SampledRow& row : rows) {
        SamplingParams params;
        params.temperature = row.temperature;
        params.top_p = row.top_p;
        params.min_p = row.min_p;
        params.top_k = row.top_k;
        params.seed = row.seed;
        ids.as<std::int32_t>()[row.row] = troupe::sample(logits.rows(row.row, 1).span<float>(),
                                                         params, row.position, row.choice, scratch_)
                                              .id;
      }
    });
  }

 private:
  struct Recorded final : Recording {
    std::vector<std::function<void()>> operations;
  };

  /// A batch for later: what the host knows of its sequences is copied, and where it is recorded it
  /// is what the device then says.
  class Batch {
   public:
    explicit Batch(const AttentionBatch& batch)
        : batch_(batch), sequences_(batch.sequences.begin(), batch.sequences.end()) {}
    AttentionBatch get() const {
      AttentionBatch batch = batch_;
      batch.sequences = sequences_;
      if (batch.recorded) {
        batch.sequences = {static_cast<const SequenceSpan*>(batch.spans.data()),
                           static_cast<std::size_t>(batch.spans[0])};
      }
      return batch;
    }

   private:
    AttentionBatch batch_;
    std::vector<SequenceSpan> sequences_;
  };

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
  Mark done_ = 0;
  std::vector<std::function<void()>>* recorded_ = nullptr;
  std::size_t chosen_taken_ = 0;
  std::size_t replayed_ = 0;
  SamplerScratch scratch_;
};

}  // namespace troupe
