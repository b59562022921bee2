#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "models/ops/ops.hpp"

namespace troupe {

/// Operations that are carried out when somebody waits for them, or recorded.
class DelayedQueue {
 public:
  explicit DelayedQueue(bool at_once) : at_once_(at_once) {}

  std::size_t enqueued() const { return enqueued_.size(); }
  std::uint64_t done() const { return done_; }
  std::uint64_t end() const { return done_ + enqueued_.size(); }

  void enqueue(std::function<void()> operation) {
    if (recorded_ != nullptr) {
      recorded_->push_back(std::move(operation));
      return;
    }
    enqueued_.push_back(std::move(operation));
    if (at_once_) carry_out_until(end());
  }
  void carry_out_until(std::uint64_t event) {
    while (done_ < event) {
      const auto operation = std::move(enqueued_.front());
      enqueued_.pop_front();
      operation();
      ++done_;
    }
  }
  /// Where operations go meanwhile; null: into the queue.
  void record_to(std::vector<std::function<void()>>* recorded) { recorded_ = recorded; }

 private:
  bool at_once_;
  std::deque<std::function<void()>> enqueued_;
  std::uint64_t done_ = 0;
  std::vector<std::function<void()>>* recorded_ = nullptr;
};

/// Copies as late as it may: when it is joined.
class LateKvSwap final : public KvSwap {
 public:
  LateKvSwap(DelayedQueue& queue, std::unique_ptr<KvSwap> swap)
      : queue_(queue), swap_(std::move(swap)) {}
  void copy_out(std::span<const SwappedBlock> blocks) override {
    copies_.push_back(
        [this, later = std::vector(blocks.begin(), blocks.end())] { swap_->copy_out(later); });
  }
  void copy_in(std::span<const SwappedBlock> blocks) override {
    copies_.push_back(
        [this, later = std::vector(blocks.begin(), blocks.end())] { swap_->copy_in(later); });
  }
  void join() override {
    for (const auto& copy : std::exchange(copies_, {})) queue_.enqueue(copy);
  }

 private:
  DelayedQueue& queue_;
  std::unique_ptr<KvSwap> swap_;
  std::vector<std::function<void()>> copies_;
};

/// A batch for later: what the host knows of its sequences is copied, and where it is recorded it
/// is what the device then says.
class LateBatch {
 public:
  explicit LateBatch(const AttentionBatch& batch)
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

// Components whose operations go through the queue to the CPU's. A new operation does not compile
// until it is here.

class DelayedDenseOps final : public DenseOps {
 public:
  DelayedDenseOps(DenseOps& inner, DelayedQueue& queue) : inner_(inner), queue_(queue) {}

 private:
  void do_embed(const Tensor& table, const Tensor& ids, std::int64_t vocab_begin,
                const Tensor& out) override {
    queue_.enqueue([=, this] { inner_.embed(table, ids, vocab_begin, out); });
  }
  void do_rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out,
                   const Linear* next) override {
    queue_.enqueue([=, this] { inner_.rms_norm(x, weight, eps, out, next); });
  }
  void do_add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, float eps,
                       const Tensor& out, const Linear* next) override {
    queue_.enqueue([=, this] { inner_.add_rms_norm(residual, x, weight, eps, out, next); });
  }
  void do_add(const Tensor& residual, const Tensor& x) override {
    queue_.enqueue([=, this] { inner_.add(residual, x); });
  }
  void do_add_bias(const Tensor& x, const Tensor& bias) override {
    queue_.enqueue([=, this] { inner_.add_bias(x, bias); });
  }
  void do_linear(const Linear& weight, const Tensor& x, const Tensor& out) override {
    queue_.enqueue([=, this, &weight] { inner_.linear(weight, x, out); });
  }
  void do_linear_gate_up(const Linear& weight, const Tensor& x, const Tensor& scratch,
                         const Tensor& out, const Linear* next) override {
    queue_.enqueue([=, this, &weight] { inner_.linear_gate_up(weight, x, scratch, out, next); });
  }
  void do_silu_mul(const Tensor& gate_up, const Tensor& out) override {
    queue_.enqueue([=, this] { inner_.silu_mul(gate_up, out); });
  }
  void do_activate(const Tensor& x, Activation activation, const Tensor& out) override {
    queue_.enqueue([=, this] { inner_.activate(x, activation, out); });
  }
  void do_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                     const Tensor& out) override {
    queue_.enqueue([=, this] { inner_.layer_norm(x, weight, bias, eps, out); });
  }
  void do_scale(const Tensor& x, float factor, float soft_cap) override {
    queue_.enqueue([=, this] { inner_.scale(x, factor, soft_cap); });
  }
  void do_gate_rows(const Tensor& x, const Tensor& input, const Tensor& weight) override {
    queue_.enqueue([=, this] { inner_.gate_rows(x, input, weight); });
  }
  void do_tree_sum(const Tensor& x, const Tensor& out) override {
    queue_.enqueue([=, this] { inner_.tree_sum(x, out); });
  }
  void do_gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) override {
    queue_.enqueue([=, this] { inner_.gather_rows(x, rows, out); });
  }
  void do_concat_columns(const Tensor& parts, const Tensor& out) override {
    queue_.enqueue([=, this] { inner_.concat_columns(parts, out); });
  }

  DenseOps& inner_;
  DelayedQueue& queue_;
};

class DelayedAttentionOps final : public AttentionOps {
 public:
  DelayedAttentionOps(AttentionOps& inner, DelayedQueue& queue, bool supports_graph)
      : inner_(inner), queue_(queue), supports_graph_(supports_graph) {}

  Result<std::pair<DeviceTensor, DeviceTensor>> allocate_kv(std::int64_t blocks,
                                                            std::int32_t block_size,
                                                            const AttentionShape& shape,
                                                            DType dtype) override {
    return inner_.allocate_kv(blocks, block_size, shape, dtype);
  }
  Result<std::unique_ptr<KvSwap>> make_swap(std::span<const KvLayer> caches,
                                            std::int64_t host_blocks) override {
    TROUPE_TRY(auto swap, inner_.make_swap(caches, host_blocks));
    return std::unique_ptr<KvSwap>(std::make_unique<LateKvSwap>(queue_, std::move(swap)));
  }
  bool supports_graph(const AttentionShape& /*shape*/, DType /*stored*/) const override {
    return supports_graph_;
  }
  PlannedAttention plan(const AttentionShape& shape, const AttentionBatch& batch) override {
    return inner_.plan(shape, batch);
  }

 private:
  void do_norm_rope_store(const Tensor& qkv, const Tensor& q_norm, const Tensor& k_norm, float eps,
                          const Tensor& rope, const AttentionShape& shape,
                          const AttentionBatch& batch, const KvLayer& cache,
                          const Tensor& q_out) override {
    queue_.enqueue([=, this, later = LateBatch(batch)] {
      inner_.norm_rope_store(qkv, q_norm, k_norm, eps, rope, shape, later.get(), cache, q_out);
    });
  }
  void do_latent_rope_store(const Columns& rotated_q, const Columns& kv, const Tensor& norm,
                            float eps, const Tensor& rope, const AttentionShape& shape,
                            const AttentionBatch& batch, const KvLayer& cache,
                            const Tensor& q_out) override {
    queue_.enqueue([=, this, later = LateBatch(batch)] {
      inner_.latent_rope_store(rotated_q, kv, norm, eps, rope, shape, later.get(), cache, q_out);
    });
  }
  void do_gather_kv(const KvLayer& cache, const AttentionShape& shape, const Tensor& slots,
                    const Tensor& rows) override {
    queue_.enqueue([=, this] { inner_.gather_kv(cache, shape, slots, rows); });
  }
  void do_scatter_kv(const Tensor& rows, const AttentionShape& shape, const Tensor& slots,
                     const KvLayer& cache) override {
    queue_.enqueue([=, this] { inner_.scatter_kv(rows, shape, slots, cache); });
  }
  void do_square_sums(const Tensor& qkv, const AttentionShape& shape, const Tensor& sums) override {
    queue_.enqueue([=, this] { inner_.square_sums(qkv, shape, sums); });
  }
  void do_norm_projections(const Tensor& qkv, const AttentionShape& shape,
                           const ProjectionNorm& norm) override {
    queue_.enqueue([=, this] { inner_.norm_projections(qkv, shape, norm); });
  }
  void do_index_rope_store(const IndexQueries& index, const Tensor& key, const Tensor& rope,
                           const AttentionShape& shape, const AttentionBatch& batch,
                           const KvLayer& cache) override {
    queue_.enqueue([=, this, later = LateBatch(batch)] {
      inner_.index_rope_store(index, key, rope, shape, later.get(), cache);
    });
  }
  void do_attend_sparse(const Tensor& q, const IndexQueries& index, const AttentionShape& shape,
                        const AttentionBatch& batch, const KvLayer& cache,
                        const Tensor& out) override {
    queue_.enqueue([=, this, later = LateBatch(batch)] {
      inner_.attend_sparse(q, index, shape, later.get(), cache, out);
    });
  }
  void do_accumulate_weights(const Tensor& q, const AttentionShape& shape,
                             const AttentionBatch& batch, const KvLayer& cache) override {
    queue_.enqueue([=, this,
                    observed = std::vector(batch.observed_rows.begin(), batch.observed_rows.end()),
                    later = LateBatch(batch)] {
      AttentionBatch now = later.get();
      now.observed_rows = observed;
      inner_.accumulate_weights(q, shape, now, cache);
    });
  }
  void do_compact(const KvCompaction& compaction, const AttentionShape& shape, const Tensor& rope,
                  const KvLayer& cache) override {
    queue_.enqueue(
        [=, this,
         sequences = std::vector(compaction.sequences.begin(), compaction.sequences.end())] {
          KvCompaction now = compaction;
          now.sequences = sequences;
          inner_.compact(now, shape, rope, cache);
        });
  }
  void do_attend(const Tensor& q, const AttentionShape& shape, const AttentionBatch& batch,
                 const KvLayer& cache, const Tensor& out) override {
    queue_.enqueue(
        [=, this, later = LateBatch(batch)] { inner_.attend(q, shape, later.get(), cache, out); });
  }

  AttentionOps& inner_;
  DelayedQueue& queue_;
  bool supports_graph_;
};

class DelayedMoeOps final : public MoeOps {
 public:
  DelayedMoeOps(MoeOps& inner, DelayedQueue& queue) : inner_(inner), queue_(queue) {}

 private:
  void do_route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                const Tensor& ids, const Tensor& weights) override {
    queue_.enqueue([=, this] { inner_.route(logits, bias, options, ids, weights); });
  }
  void do_permute(const Tensor& ids, std::int64_t first_expert, const ExpertBatch& batch) override {
    queue_.enqueue([=, this] { inner_.permute(ids, first_expert, batch); });
  }
  void do_count_rows(const ExpertBatch& batch, const Tensor& counts) override {
    queue_.enqueue([=, this] { inner_.count_rows(batch, counts); });
  }
  void do_permute_received(const Tensor& ids, const Tensor& received_counts,
                           std::int64_t first_expert, const ExpertBatch& batch,
                           const Tensor& counts) override {
    queue_.enqueue(
        [=, this] { inner_.permute_received(ids, received_counts, first_expert, batch, counts); });
  }
  void do_route_and_permute(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                            const ExpertChoices& choices, const ExpertBatch& batch,
                            const Tensor& counts) override {
    queue_.enqueue(
        [=, this] { inner_.route_and_permute(logits, bias, options, choices, batch, counts); });
  }
  void do_route_tokens(const Linear& router, const Tensor& x, const Tensor& logits,
                       const Tensor& bias, const RouterOptions& options,
                       const ExpertChoices& choices, const ExpertBatch& batch,
                       const Tensor& counts) override {
    queue_.enqueue([=, this, &router] {
      inner_.route_tokens(router, x, logits, bias, options, choices, batch, counts);
    });
  }
  void do_heads_linear(const GroupedLinear& weights, const Columns& x, const Tensor& out) override {
    queue_.enqueue([=, this, &weights] { inner_.heads_linear(weights, x, out); });
  }
  void do_grouped_linear(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                         std::int64_t top_k, bool gather, bool scatter,
                         const Tensor& out) override {
    queue_.enqueue([=, this, &weights] {
      inner_.grouped_linear(weights, x, batch, top_k, gather, scatter, out);
    });
  }
  void do_grouped_gate_up(const GroupedLinear& weights, const Tensor& x, const ExpertBatch& batch,
                          std::int64_t top_k, const Tensor& scratch, const Tensor& out) override {
    queue_.enqueue(
        [=, this, &weights] { inner_.grouped_gate_up(weights, x, batch, top_k, scratch, out); });
  }
  void do_add_expert_bias(const Tensor& x, const ExpertBatch& batch, const Tensor& bias) override {
    queue_.enqueue([=, this] { inner_.add_expert_bias(x, batch, bias); });
  }
  void do_add_chosen_bias(const Tensor& ids, const Tensor& weights, const Tensor& bias,
                          const Tensor& out) override {
    queue_.enqueue([=, this] { inner_.add_chosen_bias(ids, weights, bias, out); });
  }
  void do_combine(const Tensor& x, const Tensor& weights, const Tensor& out) override {
    queue_.enqueue([=, this] { inner_.combine(x, weights, out); });
  }
  void do_combine_local(const Tensor& x, const ExpertChoices& choices, std::int64_t local,
                        const Tensor& out) override {
    queue_.enqueue([=, this] { inner_.combine_local(x, choices, local, out); });
  }
  void do_expert_mlp(const GroupedLinear& gate_up, const GroupedLinear& down, const Tensor& x,
                     const ExpertChoices& choices, const ExpertBatch& batch,
                     const ExpertScratch& scratch, const Tensor& out,
                     const SharedMlp& shared) override {
    queue_.enqueue([=, this, &gate_up, &down] {
      inner_.expert_mlp(gate_up, down, x, choices, batch, scratch, out, shared);
    });
  }

  MoeOps& inner_;
  DelayedQueue& queue_;
};

}  // namespace troupe
